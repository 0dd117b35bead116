"""Options: frozen dataclasses, some of whose fields are groups that algorithms share.

A group is a field whose default is a dataclass, such as `descent: Descent`. `flat` lets
a constructor take a group's options by their own names, as the command line and files
have them: PPO(learning_rate=1e-3) is PPO(descent=Descent(learning_rate=1e-3)).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ecop.errors import UserError, unknown


def flat(kind: Any) -> Any:
    """Let the constructor of an options class take the options of its groups."""
    plain = kind.__init__
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if dataclasses.is_dataclass(field.default)
    }
    homes = {name: group for group in defaults for name in values(defaults[group])}

    def __init__(self: Any, **options: Any) -> None:
        own = {name: value for name, value in options.items() if name not in homes}
        for name, value in options.items():
            if name in homes:
                group = own.get(homes[name], defaults[homes[name]])
                own[homes[name]] = dataclasses.replace(group, **{name: value})
        known = [field.name for field in dataclasses.fields(self)]
        for name in own:
            if name not in known:
                names = [n for n in (*known, *homes) if n not in defaults]
                raise UserError(unknown(f"option of {kind.__name__}", name, names))
        plain(self, **own)

    kind.__init__ = __init__
    return kind


def values(options: Any) -> dict[str, Any]:
    """All options by name, those of groups among them."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            found |= values(value)
        else:
            found[field.name] = value
    return found
