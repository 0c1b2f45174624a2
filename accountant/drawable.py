"""A value that notebooks display and matplotlib draws. The drawing is above this room: `croupier` registers it here."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar


class Drawable:
    """The base of certificates and curves, which display themselves in notebooks."""

    drawing: ClassVar[Callable[[], ModuleType]]
    """Loads the module with `plot` and `html`, when the first value is drawn; `croupier/__init__.py` sets it."""

    def plot(self, axes: Any = None) -> Any:
        """Draws on matplotlib axes (None: new ones), and returns the axes.

        A certificate shows the local and the central epsilon of every tier; a curve shows delta against epsilon with
        its attacks, as points if its deltas were given.

        Raises ImportError without matplotlib, which is in the extra `plots`. `axes.figure.savefig(path)` saves it.
        """
        return Drawable.drawing().plot(self, axes)

    def _repr_html_(self) -> str:
        """Returns HTML for notebooks: a table, and the assumptions of the numbers; for a curve the plot as well."""
        html: str = Drawable.drawing().html(self)
        return html
