"""N-best lists as text: LINE ||| TEXT ||| SCORE, one entry a line, as Moses writes them."""

import re

SEPARATOR = " ||| "
_BAR = "&#124;"  # how Moses escapes a bar
# An escaped bar; or, in a text, what would be read as one: it gets one more "amp;", which reading takes away.
_SPELLED = re.compile("&(amp;)?((?:amp;)*#124;)")


def entry(line: int, text: str, score: float) -> str:
    """Returns one entry; `text_of` gives the text back, whatever it is. `line` counts from 0."""
    escaped = _SPELLED.sub(lambda found: f"&amp;{found[0][1:]}", text).replace("|||", 3 * _BAR)
    return SEPARATOR.join((str(line), escaped, f"{score:.6f}"))


def text_of(field: str) -> str:
    """Returns the text that the second field of an entry spells: `&#124;` is a bar, and `&amp;#124;` is `&#124;`."""
    return _SPELLED.sub(lambda found: f"&{found[2]}" if found[1] else "|", field)
