"""The vault: tokens of logins, encrypted at rest."""
