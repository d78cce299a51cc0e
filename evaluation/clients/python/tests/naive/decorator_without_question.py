"""A decorator with a question that is always the same."""

# comes of it: TypeError
from policy_service import Client, Question


def careless(client: Client, question: Question) -> str:
    @client.enforced(question)  # refused: mypy arg-type, pyright reportArgumentType
    def act() -> str:
        return "acted"

    return act()
