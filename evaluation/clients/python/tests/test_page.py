"""Docstrings have every kind of error and every option, and the package has one version."""

import inspect
import pathlib
import re
import tomllib
import typing
import unittest

from policy_service import AuthorizationError, Client, __version__, errors

ROOT = pathlib.Path(__file__).parents[1]


def first_cells(text: str | None) -> list[str]:
    """The names in the first column of the table in a docstring."""
    rows = re.findall(r"^ {4}([\w, ]+?) {2,}\S", text or "", re.M)
    return [name for row in rows for name in row.split(", ")]


class Page(unittest.TestCase):
    def test_errors(self) -> None:
        self.assertEqual(sorted(first_cells(AuthorizationError.__doc__)), sorted(typing.get_args(errors.Kind)))

    def test_options(self) -> None:
        parameters = [name for name in inspect.signature(Client).parameters if name not in ("url", "tenant")]
        self.assertEqual(first_cells(Client.__doc__), parameters)

    def test_version(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        self.assertEqual(project["version"], __version__)
        self.assertIn(f"\n## {__version__}\n", (ROOT / "CHANGELOG.md").read_text())


if __name__ == "__main__":
    unittest.main()
