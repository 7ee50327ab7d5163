"""``python -m sweeper`` is the ``sweeper`` command."""

from sweeper.cli import app

if __name__ == "__main__":
    app(prog_name="sweeper")
