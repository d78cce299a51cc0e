"""A no that is written over."""

# comes of it: AttributeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    answer = client.evaluate(question)
    answer.permitted = True  # refused: mypy misc, pyright reportAttributeAccessIssue
    return "acted" if answer.permitted else "refused"
