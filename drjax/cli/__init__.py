"""The command `drjax`: parses arguments, calls the layers below, prints; an error is one line and exit status 2."""

from drjax.cli.main import main

__all__ = ["main"]
