"""Other aggregators beside this one: installed, run and measured alike."""
