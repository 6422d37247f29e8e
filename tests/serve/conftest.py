"""A model on disk, and one service that all tests which change nothing share."""

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

from labelgrove import Linear
from labelgrove.data.shop import shop_corpus
from labelgrove.labels.tree import TreeParams
from support.browsing import browser as started_browser
from support.browsing import visiting
from support.services import fitted, running


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model"
    fitted().save(path)
    return path


@pytest.fixture(scope="session")
def shop():
    return shop_corpus(1200, labels=120)


@pytest.fixture(scope="session")
def shop_model(shop, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "model"
    Linear(tree=TreeParams(branching=4, max_leaf_size=8)).fit(shop).save(path)
    return path


# Not for the whole session: while it lives, no other test of this thread can call asyncio.run.
@pytest.fixture(scope="module")
def browser():
    with started_browser() as started:
        yield started


@pytest.fixture
def visit(browser, service):
    """The page of the module's service in a window of its own."""
    with visiting(browser, service.base_url) as visit:
        yield visit


@pytest.fixture
def page(visit):
    return visit.page


@pytest.fixture(scope="session")
def client(model_path):
    with running(model_path, max_body=20_000, max_text_chars=1000, max_k=20) as client:
        yield client
