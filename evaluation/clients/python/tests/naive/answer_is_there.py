"""The answer compared with None."""

# comes of it: acted
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    if client.evaluate(question) is not None:  # refused: pyright reportUnnecessaryComparison
        return "acted"
    return "refused"
