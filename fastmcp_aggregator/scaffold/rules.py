"""The names and first contents of new servers: values and validators. Pure."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fastmcp_aggregator.service import limits

Language = Literal["python", "typescript"]

SNAKE_CASE = r"^[a-z][a-z0-9_]*$"
"""A first component of a project: each is the name of a function, too."""
COMPONENT_NAME_LENGTH = 64
DESCRIPTION_LENGTH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource to begin with. With `{parameters}` in its URI it is a template."""

    name: str
    uri: str

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{([^{}]*)\}", self.uri))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The server that is to be written: what it is called, and what it has to begin with."""

    name: str
    language: Language = "python"
    version: str = "0.1.0"
    description: str = ""
    tools: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = ()
    prompts: tuple[str, ...] = ()
    examples: bool = False
    """With what shows the use of a request's context: progress, log messages, questions, images, links."""
    hub_grade: bool = False
    """With limits, authentication, deadlines and a graceful end of its own."""

    @property
    def project(self) -> str:
        """The name of the project and its command: the server's, without dashes at its ends, which pip refuses."""
        return self.name.strip("-") or "server"

    @property
    def package(self) -> str:
        """The name of its Python package, which must hide no other that the server has or uses."""
        package = self.project.replace("-", "_")
        if package[0].isdigit() or _OF_TESTS.fullmatch(package):
            return f"server_{package}"
        is_taken = keyword.iskeyword(package) or package in sys.stdlib_module_names or package in _TAKEN_MODULES
        return f"{package}_server" if is_taken else package

    def problems(self) -> list[str]:
        """Everything that is wrong with it, each as a sentence; none if it can be written."""
        names = [*self.tools, *(resource.name for resource in self.resources), *self.prompts]
        return [*_server_problems(self), *_component_problems(self), *_repeated(names)]


def _server_problems(plan: Plan) -> Iterator[str]:
    if not re.search(limits.SERVER_NAME, plan.name) or len(plan.name) > limits.SERVER_NAME_LENGTH or "\n" in plan.name:
        yield (
            f"the server name {plan.name!r} cannot be used: "
            f"write a-z, 0-9 and `-`, at most {limits.SERVER_NAME_LENGTH} characters"
        )
    elif plan.project in _TAKEN_PROJECTS:
        yield f"the server name {plan.name!r} is that of a library or file which the server uses; choose another"
    if not re.search(limits.VERSION_PATTERN, plan.version) or "\n" in plan.version:
        yield f"the version {plan.version!r} is not a semantic version; write one such as 1.0.0 (semver.org)"
    if len(plan.description) > DESCRIPTION_LENGTH:
        yield f"the description has {len(plan.description)} characters; at most {DESCRIPTION_LENGTH} are allowed"
    if any(not character.isprintable() for character in plan.description):
        yield "the description must be one line of printable characters"


def _component_problems(plan: Plan) -> Iterator[str]:
    for name in plan.tools:
        yield from _name_problems("tool", name)
    for resource in plan.resources:
        yield from _name_problems("resource", resource.name)
        yield from _uri_problems(resource)
    for name in plan.prompts:
        yield from _name_problems("prompt", name)


def _name_problems(kind: str, name: str) -> Iterator[str]:
    if not re.search(SNAKE_CASE, name) or len(name) > COMPONENT_NAME_LENGTH or "\n" in name:
        yield (
            f"the {kind} name {name!r} cannot be used: write a-z, 0-9 and `_`, begin with a letter, "
            f"at most {COMPONENT_NAME_LENGTH} characters"
        )


def _uri_problems(resource: Resource) -> Iterator[str]:
    literal = re.sub(r"\{[^{}]*\}", "x", resource.uri)
    if not _URI.fullmatch(literal):
        yield f"the URI {resource.uri!r} of {resource.name} is not one; write scheme://rest, such as notes://{{name}}"
    if re.fullmatch(r"(https?|wss?|ftp)://[^/]*", literal):
        yield f"the URI {resource.uri!r} of {resource.name} has no path; write it with a `/`, as clients do"
    for parameter in resource.parameters:
        if not parameter.isascii() or not parameter.isidentifier() or keyword.iskeyword(parameter):
            yield (
                f"the expression {{{parameter}}} in the URI of {resource.name} cannot be used; "
                "write a plain variable (RFC 6570, level 1), such as {name}"
            )
    yield from _repeated(resource.parameters, f"in the URI of {resource.name}, ")


def _repeated(names: Sequence[str], where: str = "") -> Iterator[str]:
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"{where}the name {name!r} is given more than once; each must be unique, whatever it names"


# Names of Python's own tests, and of the project's.
_OF_TESTS = re.compile(r"tests?|test_.*|.*_test|conftest")
# RFC 3986: a scheme, then characters that a URI may have; no space, quote or backslash, which would need escaping.
_URI = re.compile(r"[a-z][a-z0-9+.-]*://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
# Packages of the projects; a project of such a name would shadow them.
_TAKEN_PROJECTS = {
    *("aiofile", "annotated-types", "anyio", "ast-serialize", "attrs", "authlib", "backports-tarfile", "beartype"),
    *("cachetools", "caio", "certifi", "cffi", "click", "colorama", "cryptography", "cyclopts", "dnspython"),
    *("docstring-parser", "email-validator", "exceptiongroup", "fastmcp", "fastmcp-aggregator", "fastmcp-slim"),
    *("filelock", "griffelib", "h11", "httpcore2", "httptools", "httpx", "httpx2", "idna", "importlib-metadata"),
    *("iniconfig", "jaraco-classes", "jaraco-context", "jaraco-functools", "jeepney", "jinja2", "joserfc", "jsonref"),
    *("jsonschema", "jsonschema-path", "jsonschema-rs", "jsonschema-specifications", "keyring", "lazy-importer"),
    *("librt", "markdown-it-py", "markupsafe", "mcp", "mcp-types", "mdurl", "more-itertools", "msgspec", "mypy"),
    *("mypy-extensions", "openapi-pydantic", "opentelemetry-api", "p-retry", "packaging", "pathable", "pathspec"),
    *("platformdirs", "pluggy", "prometheus-client", "py-key-value-aio", "pycparser", "pydantic", "pydantic-core"),
    *("pydantic-settings", "pygments", "pyjwt", "pyperclip", "pytest", "pytest-asyncio", "python-dotenv"),
    *("python-multipart", "pyyaml", "referencing", "rich", "rich-rst", "rpds-py", "ruff", "secretstorage", "shtab"),
    *("smol-toml", "sse-starlette", "stamina", "starlette", "structlog", "tenacity", "tomli", "tomlkit"),
    *("truststore", "typescript", "typing-extensions", "typing-inspection", "uncalled-for", "uvicorn", "watchfiles"),
    *("websockets", "zipp", "zod"),
    *("biome", "package", "package-lock", "pyproject", "tsconfig"),  # files of the templates
}
# Modules of these with another name.
_TAKEN_MODULES = {
    *("attr", "backports", "dns", "dotenv", "griffe", "jaraco", "jwt", "key_value", "markdown_it", "multipart"),
    *("mypyc", "opentelemetry", "proxytypes", "py", "rpds", "yaml"),
}
