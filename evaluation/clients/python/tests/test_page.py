"""The tables of README.md have every kind of error and every option, and the package has one version."""

import inspect
import pathlib
import re
import tomllib
import typing
import unittest

from policy_service import AuthorizationError, Client, __version__, errors

ROOT = pathlib.Path(__file__).parents[1]


def first_cells(after: str) -> list[str]:
    """The names in the first column of the table behind a heading."""
    rows = (ROOT / "README.md").read_text().split(f"\n## {after}\n")[1].split("\n## ")[0].split("\n|")[3:]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[0])]


class Page(unittest.TestCase):
    def test_errors(self) -> None:
        self.assertEqual(sorted(first_cells("Errors")), sorted(typing.get_args(errors.Kind)))
        page = (ROOT / "README.md").read_text().split("\n## Errors\n")[1].split("\n\n|")[0]
        for name in vars(AuthorizationError("denied")):
            if not name.startswith("_") and name not in ("op", "place", "detail"):
                self.assertIn(f"`{name}`", page)

    def test_options(self) -> None:
        parameters = [name for name in inspect.signature(Client).parameters if name != "url"]
        self.assertEqual(first_cells("Options"), parameters)

    def test_version(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        self.assertEqual(project["version"], __version__)
        self.assertIn(f"\n## {__version__}\n", (ROOT / "CHANGELOG.md").read_text())


if __name__ == "__main__":
    unittest.main()
