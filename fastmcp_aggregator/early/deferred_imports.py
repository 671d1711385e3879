"""Deferred imports: libraries that FastMCP and the SDK load for what a server here does rarely, loaded when it does.

Theory. What imports a name of one of these modules while `deferred` is entered gets a stand-in. Whatever is done with a
stand-in loads its library, and puts what they stand for in the place of all of the library's, in every module that has
one; so an exception of it is caught as itself, for it is raised by what was loaded. It saves a sixth of the memory and
a third of the start. It is for programs alone: who imports the package gets what is imported everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

Library = tuple[str, ...]
"""Modules that are used together."""
LIBRARIES: tuple[Library, ...] = (
    (
        "cryptography.exceptions",
        "cryptography.hazmat.primitives.asymmetric.ec",
        "cryptography.hazmat.primitives.asymmetric.ed25519",
        "cryptography.hazmat.primitives.asymmetric.rsa",
        "cryptography.hazmat.primitives.ciphers.aead",
        "cryptography.hazmat.primitives.hashes",
        "cryptography.hazmat.primitives.kdf.hkdf",
        "cryptography.hazmat.primitives.serialization",
    ),
    ("joserfc.jwk", "joserfc.jws", "joserfc.jwt"),
    ("jwt",),
    ("key_value.aio.adapters.pydantic", "key_value.aio.protocols", "key_value.aio.stores.memory"),
    ("uvicorn.supervisors",),
)


class StandIn:
    """One name of a module that is not loaded."""

    __slots__ = ("_module", "_name", "library")

    def __init__(self, library: Library, module: str, name: str) -> None:
        self.library = library
        self._module = module
        self._name = name

    def original(self) -> Any:
        return getattr(import_module(self._module), self._name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return _loaded(self)(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(_loaded(self), name)

    def __getitem__(self, item: Any) -> Any:
        return _loaded(self)[item]

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, _loaded(self))

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (_loaded(self),)

    def __or__(self, other: Any) -> Any:
        return _loaded(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | _loaded(self)


class StandInModule(ModuleType):
    """A module that is not loaded."""

    def __init__(self, library: Library, name: str) -> None:
        super().__init__(name)
        self.library = library

    def original(self) -> ModuleType:
        return import_module(self.__name__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system looks for
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            return StandIn(self.library, self.__name__, name)
        return getattr(_loaded(self), name)


@contextmanager
def deferred(libraries: tuple[Library, ...] = LIBRARIES) -> Iterator[None]:
    """Have imports meanwhile defer the libraries of which nothing is loaded."""
    for library in libraries:
        if not any(name in sys.modules for name in library):
            sys.modules.update({name: StandInModule(library, name) for name in library})
    try:
        yield
    finally:
        _end_deferring()


def _loaded(stand_in: StandIn | StandInModule) -> Any:
    """The real module. One that an import uses at once cannot be deferred, nor what else it may use."""
    if not _end_deferring():
        _replace_all_of(stand_in.library)
    return stand_in.original()


def _end_deferring() -> bool:
    """Stop deferring; True if imports were being deferred until now."""
    modules = [name for name, module in sys.modules.items() if isinstance(module, StandInModule)]
    for name in modules:
        del sys.modules[name]
    return bool(modules)


def _replace_all_of(library: Library) -> None:
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType):  # a module may put anything there in its place
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, StandIn | StandInModule) and value.library == library:
                setattr(module, name, value.original())
