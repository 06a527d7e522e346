"""How fast are documents read? Each kind through the reader of the gateway, with its processes.

Texts are made of words, so that they pack as real ones do. Printed are megabytes of the file, and
of its text, per second of CPU time in the gateway and its processes together: what one core reads.
The second table shows what a parsing process costs to start, and the memory of the gateway.

    python bench/documents.py [--seconds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.tools.documents.making import (
    docx_parts,
    make_docx,
    make_pdf,
    make_pptx,
    make_xlsx,
    pack,
)

from antiphon.tools.documents.base import Source, content_of
from antiphon.tools.documents.reader import Documents
from antiphon.tools.documents.settings import DocumentSettings

__all__ = ["main"]

_MB: Final = 1e6
GOALS: Final = {"text": (50.0, "file"), "docx": (5.0, "text"), "pdf": (0.08, "text")}


def _words(count: int, seed: int) -> list[str]:
    """Return lines of words, some often and most seldom, as in a text."""
    chance = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgk"
    known = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(8000)]
    weights = [1 / (place + 5) for place in range(len(known))]
    return [" ".join(chance.choices(known, weights, k=12)) for _ in range(count)]


def _word(lines: list[str]) -> bytes:
    """Return a document as Word writes it: ids on each paragraph, and properties on each run."""
    style = '<w:pPr><w:pStyle w:val="BodyText"/><w:spacing w:after="120"/></w:pPr>'
    look = '<w:rPr><w:rFonts w:ascii="Calibri" w:hAnsi="Calibri"/><w:sz w:val="22"/></w:rPr>'
    run = f'<w:r w:rsidRPr="00A1B2C3">{look}<w:t xml:space="preserve">{{}}</w:t></w:r>'
    chance = random.Random(2)
    paragraphs = (
        f'<w:p w:rsidR="{chance.getrandbits(32):08X}" w:rsidRDefault="00D4E5F6">{style}'
        f"{run.format(line[:30])}{run.format(line[30:])}</w:p>"
        for line in lines
    )
    return pack(docx_parts("".join(paragraphs)))


def _files() -> dict[str, tuple[str, bytes]]:
    lines = _words(12_000, 1)
    pages = [lines[at : at + 40] for at in range(0, 2000, 40)]
    row = "<row>" + '<c t="inlineStr"><is><t>{}</t></is></c><c><v>{}</v></c>' * 4 + "</row>"
    cells = [
        row.format(*(x for n, w in enumerate(line.split()[:4]) for x in (w, n))) for line in lines
    ]
    html = "".join(f"<p>{line}</p>" for line in lines)
    return {
        "text": ("a.txt", "\n".join(lines * 40).encode()),
        "text, latin-1": ("a.txt", ("é\n" + "\n".join(lines * 40)).encode("latin-1")),
        "docx": ("a.docx", _word(lines)),
        "pptx": ("a.pptx", make_pptx(pages * 4)),
        "xlsx": ("a.xlsx", make_xlsx({"S": "".join(cells)})),
        "html": ("a.html", html.encode()),
        "pdf": ("a.pdf", make_pdf(pages)),
    }


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def _read(reader: Documents, name: str, data: bytes) -> int:
    size = 0
    async for piece in reader.read(Source(name, len(data), content_of(data))):
        size += len(piece.encode())
    return size


async def _measure(name: str, data: bytes, seconds: float) -> tuple[float, float, float]:
    """Return megabytes of file and of text per second of CPU time, and the longest pause."""
    reader = Documents(DocumentSettings(processes=1))
    await _read(reader, name, data)  # starts the process, and imports its library
    await reader.close()
    reader = Documents(DocumentSettings(processes=1))
    began, used, rounds, text = time.perf_counter(), _cpu(), 0, 0
    while time.perf_counter() - began < seconds or not rounds:
        text += await _read(reader, name, data)
        rounds += 1
    await reader.close()  # the time of a process is known when it has ended
    used = _cpu() - used
    return rounds * len(data) / used / _MB, text / used / _MB, rounds


async def _start_seconds() -> float:
    """Return how long the first document takes, with the start of its process."""
    times = []
    data = make_docx(["x"])
    for _ in range(5):
        reader = Documents()
        began = time.perf_counter()
        await _read(reader, "a.docx", data)
        times.append(time.perf_counter() - began)
        await reader.close()
    return sorted(times)[2]


async def _run(seconds: float) -> bool:
    print(f"{'kind':16}{'file MB':>9}{'file MB/s':>11}{'text MB/s':>11}   goal")
    is_met = True
    for kind, (name, data) in _files().items():
        file, text, _ = await _measure(name, data, seconds)
        goal, of = GOALS.get(kind, (0.0, ""))
        found = file if of == "file" else text
        is_met = is_met and found >= goal
        verdict = f"{of} >= {goal:g}: {'met' if found >= goal else 'MISSED'}" if goal else ""
        print(f"{kind:16}{len(data) / _MB:9.2f}{file:11.2f}{text:11.2f}   {verdict}")
    print(
        f"\nfirst document, with the start of its process: {await _start_seconds() * 1000:.0f} ms"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process, files included: {peak:.0f} MiB")
    return is_met


def main() -> None:
    """Measure, and exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each kind")
    sys.exit(0 if asyncio.run(_run(parser.parse_args().seconds)) else 1)


if __name__ == "__main__":
    main()
