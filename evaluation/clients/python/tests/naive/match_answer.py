"""The answer matched with True."""

# comes of it: refused
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    match client.evaluate(question):
        case True:  # refused: pyright reportUnnecessaryComparison
            return "acted"
        case _:
            return "refused"
