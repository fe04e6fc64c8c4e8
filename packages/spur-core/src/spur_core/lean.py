"""Four things of the standard library without the Python half that makes them heavy.

For the supervisor, of which a node runs hundreds: `signal` wraps every number into an enum, `functools`,
`collections` and `types` bring what nobody there asks for; together 0.8 MiB of memory and 3 ms.  Here are the
same names from where the standard library has them itself; checkers see the originals.
"""

import sys

# Not from typing, which is heavy; checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections import namedtuple
    from functools import partial
    from types import MappingProxyType
else:
    import _signal as signal
    from _collections import _tuplegetter
    from _functools import partial

    MappingProxyType = type(type.__dict__)

    class _Named(tuple):
        """Base of every class that `namedtuple` makes; one set of functions for all of them."""

        __slots__ = ()
        _fields = ()
        _field_defaults = {}  # noqa: RUF012 - as namedtuple has it; nobody writes there

        def __new__(cls, *args, **named):
            if named or len(args) != len(cls._fields):
                args = _complete(cls, args, named)
            return tuple.__new__(cls, args)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _replace(self, **named):
            return type(self)(**{**self._asdict(), **named})

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            shown = ", ".join([f"{name}={value!r}" for name, value in self._asdict().items()])
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self):
            return tuple(self)

    def _complete(cls, args, named):
        """The values of all fields in order.

        Raises:
            TypeError: too many, an unknown one, one twice, or one without a default is missing.
        """
        fields = cls._fields
        if len(args) > len(fields):
            raise TypeError(f"{cls.__name__} has {len(fields)} fields, not {len(args)}")
        values = {**dict(zip(fields, args, strict=False)), **named}
        if len(values) != len(args) + len(named):
            raise TypeError(f"{cls.__name__}: a field is given twice")
        values = {**cls._field_defaults, **values}
        if len(values) != len(fields) or not all(name in values for name in fields):
            odd = [name for name in named if name not in fields] or [n for n in fields if n not in values]
            raise TypeError(f"{cls.__name__}: unknown or missing: {', '.join(odd)}")
        return tuple([values[name] for name in fields])

    def namedtuple(name, fields, *, defaults=()):
        """A tuple class with named fields, as `collections.namedtuple` makes one."""
        fields = tuple(fields.split() if isinstance(fields, str) else fields)
        space = {
            "__slots__": (),
            "__match_args__": fields,
            "__module__": sys._getframe(1).f_globals["__name__"],
            "_fields": fields,
            "_field_defaults": dict(zip(fields[len(fields) - len(defaults) :], defaults, strict=True)),
        }
        for at, field in enumerate(fields):
            space[field] = _tuplegetter(at, None)
        return type(name, (_Named,), space)


__all__ = ["MappingProxyType", "namedtuple", "partial", "signal"]
