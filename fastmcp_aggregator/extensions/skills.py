"""Skills (SEP-2640): folders of instructions for models, whose files are resources. Pure.

Servers list them, page by page; a skill, and the folder of a resource, are asked for by address. Names, digests and
sizes stay as they are: the files are read as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastmcp_aggregator.extensions.extension import Extension, Item, publish_uri
from fastmcp_aggregator.protocol.methods import DIRECTORY_READ, MODERN, SKILLS_GET, SKILLS_LIST


def publish_skills(result: Item, publish: Callable[[str], str]) -> Item:
    """A page of the list of skills."""
    skills = result.get("skills")
    return {**result, "skills": [_skill(skill, publish) for skill in skills]} if isinstance(skills, list) else result


def publish_skill(result: Item, publish: Callable[[str], str]) -> Item:
    return {**result, "skill": _skill(result["skill"], publish)} if "skill" in result else result


def publish_folder(result: Item, publish: Callable[[str], str]) -> Item:
    found = result.get("resources")
    if not isinstance(found, list):
        return result
    return {**result, "resources": [publish_uri(each, publish) for each in found]}


def _skill(skill: Any, publish: Callable[[str], str]) -> Any:
    published = publish_uri(skill, publish)
    if isinstance(skill, dict) and isinstance(files := skill.get("resources"), list):
        return {**published, "resources": [publish_uri(file, publish) for file in files]}
    return published


SKILLS = Extension(
    "io.modelcontextprotocol/skills",
    eras=MODERN,
    settings={"directoryRead": True},
    methods=(SKILLS_LIST, SKILLS_GET, DIRECTORY_READ),
    rewrites={
        SKILLS_LIST.name: publish_skills,
        SKILLS_GET.name: publish_skill,
        DIRECTORY_READ.name: publish_folder,
    },
)
