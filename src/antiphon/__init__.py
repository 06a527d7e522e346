"""antiphon: the Responses gateway that never lies.

`import antiphon` is cheap: it binds the version and nothing else. The rooms are imported by
name (`antiphon.protocol`, `antiphon.server`, …); `antiphon.testing` holds the public fakes.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
