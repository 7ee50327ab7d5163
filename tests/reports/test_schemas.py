"""The documented JSON schemas are those of the code, and real output fits them."""

from pathlib import Path

import jsonschema
import pytest

from reports.schemas import SCHEMAS, schema_text
from sweeper.check import check_study
from sweeper.config import StudyConfig

DOCUMENTED = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_documented_schema_is_current(name: str) -> None:
    assert (DOCUMENTED / f"{name}.schema.json").read_text() == schema_text(SCHEMAS[name]), "run: make schemas"


def test_a_check_fits_its_schema(study: StudyConfig) -> None:
    jsonschema.validate(check_study(study).model_dump(mode="json"), SCHEMAS["check"].model_json_schema())
