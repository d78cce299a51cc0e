"""Docstrings have every kind of error and every option, the page the members of errors; the package has one version."""

import inspect
import pathlib
import re
import tomllib
import typing
import unittest

from policy_service import AuthorizationError, Client, __version__, errors

ROOT = pathlib.Path(__file__).parents[1]


def first_words(of: type) -> list[str]:
    """The names in the first column of the table in a docstring."""
    rows = re.findall(r"^    (\w+(?:, \w+)*)  ", of.__doc__ or "", re.M)
    return [name for row in rows for name in row.split(", ")]


class Page(unittest.TestCase):
    def test_errors(self) -> None:
        self.assertEqual(sorted(first_words(AuthorizationError)), sorted(typing.get_args(errors.Kind)))
        page = (ROOT / "README.md").read_text().split("\n## Errors\n")[1]
        for name in vars(AuthorizationError("denied")):
            if not name.startswith("_") and name not in ("op", "place", "detail"):
                self.assertIn(f"`{name}`", page)

    def test_options(self) -> None:
        parameters = [name for name in inspect.signature(Client).parameters if name != "url"]
        self.assertEqual(first_words(Client), parameters)

    def test_version(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        self.assertEqual(project["version"], __version__)
        self.assertIn(f"\n## {__version__}\n", (ROOT / "CHANGELOG.md").read_text())


if __name__ == "__main__":
    unittest.main()
