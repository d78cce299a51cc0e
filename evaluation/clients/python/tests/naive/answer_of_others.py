"""A member of the answers of others."""

# comes of it: AttributeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    return "acted" if client.evaluate(question).allow else "refused"  # refused: mypy attr-defined, pyright reportAttributeAccessIssue
