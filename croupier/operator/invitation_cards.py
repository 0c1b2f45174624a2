"""The links of invitations as files: a table for a mail merge, QR codes as pictures, and cards to print and cut."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from croupier.operator.keys import write_secret
from croupier.show.csv_file import csv_text

LINK_COLUMNS = ("link", "expires", "qr")
"""The columns of the file of links after those of the people."""

_STYLE = """
body { font: 11pt/1.4 system-ui, sans-serif; margin: 10mm; }
.cards { display: grid; grid-template-columns: repeat(2, 1fr); }
.card { border: 1px dashed #888; padding: 6mm; break-inside: avoid; text-align: center; }
.card svg { width: 52mm; height: 52mm; }
.link { font-size: 7pt; overflow-wrap: anywhere; color: #444; }
"""


def check_qr_codes(wanted: bool) -> None:
    """Raises ImportError if QR codes are wanted without the library that draws them, of the extra `invitations`."""
    if wanted:
        import segno  # noqa: F401


def write_links(
    folder: Path,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    links: Sequence[str],
    expires: str,
    title: str,
    qr_codes: bool,
) -> None:
    """Writes links.csv, and with QR codes qr/0001.png and so on and cards.html, into a new folder for its owner only.

    Args:
        folder: that does not exist.
        columns: of the people's file.
        rows: of that file, one for each person; the first column is the label.
        links: in the same order.
        expires: the time of expiry; may be empty.
        title: of the survey.
        qr_codes: whether to draw them.

    Raises:
        ImportError: see `check_qr_codes`.
    """
    check_qr_codes(qr_codes)
    folder.mkdir(parents=True, mode=0o700)
    pictures = [f"qr/{number:04}.png" if qr_codes else "" for number in range(1, len(links) + 1)]
    names = [*columns, *LINK_COLUMNS[: 3 if qr_codes else 2]]
    table = [
        (*row, link, expires, picture)[: len(names)] for row, link, picture in zip(rows, links, pictures, strict=True)
    ]
    write_secret(folder / "links.csv", csv_text(names, table))
    if not qr_codes:
        return
    import segno

    (folder / "qr").mkdir(mode=0o700)
    cards = []
    for row, link, picture in zip(rows, links, pictures, strict=True):
        code = segno.make_qr(link, error="m")
        code.save(str(folder / picture), scale=8, border=4)
        drawn = code.svg_inline(border=4, omitsize=True)
        label, until = escape(row[0]), f"<p>until {escape(expires)}</p>" if expires else ""
        cards.append(f'<div class="card"><h2>{label}</h2>{drawn}{until}<p class="link">{escape(link)}</p></div>')
    page = (
        f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
        f'<h1>{escape(title)}</h1><div class="cards">{"".join(cards)}</div>\n'
    )
    write_secret(folder / "cards.html", page)
