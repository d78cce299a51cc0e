"""A dependency of FastAPI with a question that is always the same."""

# comes of it: TypeError
from fastapi import Depends

from policy_service import Client, Question
from policy_service.fastapi import protect


def careless(client: Client, question: Question) -> str:
    Depends(protect(client, question))  # refused: mypy arg-type, pyright reportArgumentType
    return "acted"
