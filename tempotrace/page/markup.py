"""HTML and SVG as text, escaped unless it says that it is markup already.

Names of switches, ports and jobs come from captures and files: none of them is trusted. What cannot be shown (control
characters, halves of surrogates, marks that turn the direction of text) becomes U+FFFD.
"""

import re
from html import escape
from typing import Final

_UNSHOWN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class Markup(str):
    """Text that is markup."""

    __slots__ = ()


Part = str | int | float | None


def text(value: Part) -> Markup:
    """As it may stand between tags or in a quoted attribute."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup()
    if isinstance(value, float):
        value = f"{value:.6g}"
    return Markup(escape(shown(str(value))))


def shown(value: str) -> str:
    """Without characters that have no look of their own."""
    return _UNSHOWN.sub("\ufffd", value)


def join(*parts: Part) -> Markup:
    """Parts one after the other."""
    return Markup("".join(text(part) for part in parts))


def tag(name: str, /, *children: Part, **attributes: Part) -> Markup:
    """An element. `class_` is class, `data_v` is data-v; an attribute of None is left out, True stands alone."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        words.append(label if value is True else f'{label}="{text(value)}"')
    if name in ("br", "input", "line", "rect", "path", "circle", "use") and not children:
        return Markup(f"<{' '.join(words)}/>" if name not in ("br", "input") else f"<{' '.join(words)}>")
    return Markup(f"<{' '.join(words)}>{join(*children)}</{name}>")
