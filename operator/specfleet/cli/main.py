"""Entry point of `kubectl-specfleet`: says what to install where the extra `cli` is missing."""

import sys


def main() -> None:
    """Run the plugin with the process's arguments; exits with its status."""
    try:
        from specfleet.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "yaml"):
            raise
        sys.exit(f"kubectl-specfleet needs the Python package {error.name}: pip install 'specfleet[cli]'")
    app(prog_name="kubectl specfleet")


if __name__ == "__main__":
    main()
