"""`python -m antiphon` is the command line."""

from __future__ import annotations

from antiphon.cli import main

if __name__ == "__main__":
    main(prog_name="antiphon")
