"""The options of the component `response_template`, as a configuration writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from hermes_parsers.engine.options import ParserOptions


class ResponseTemplateOptions(ParserOptions):
    """Options of parser `response_template`."""

    source: dict[str, Any] | str | Path = Field(
        description="The template, or the tokenizer_config.json that contains it, or the folder of that file, or the "
        "JSON itself."
    )
    name: str = Field(default="response_template", description="The key of the template in the configuration.")
