"""The component `response_template`: a parser built from the metadata that its options point to."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from hermes_parsers.declarative.errors import TemplateError
from hermes_parsers.declarative.parser import TemplateParser
from hermes_parsers.declarative.sources import find_template
from hermes_parsers.declarative.template import read_template
from hermes_parsers.engine.scanning.parser import OptionsOnDemand

if TYPE_CHECKING:
    from hermes_parsers.declarative.options import ResponseTemplateOptions


class ResponseTemplateParser(TemplateParser):
    """A parser built from a model's metadata.

    Args:
        options: Options validated by a registry, in place of the keyword arguments.
        source: The template, or a configuration that contains it, as a mapping, as JSON text, or as a path.
        name: The key of the template in the configuration.
        promote_drafts: Turn calls that were drafted in reasoning into calls when no call follows.
        reasoning_opened: The prompt has already opened the reasoning, so the text begins inside it.

    Raises:
        TemplateError: There is no template, it is malformed, or a pattern in it cannot be matched in linear time.
    """

    Options = OptionsOnDemand("hermes_parsers.declarative.options", "ResponseTemplateOptions")

    def __init__(
        self,
        options: ResponseTemplateOptions | None = None,
        *,
        source: Mapping[str, Any] | str | PathLike[str] | None = None,
        name: str = "response_template",
        promote_drafts: bool = False,
        reasoning_opened: bool = False,
    ) -> None:
        if options is not None:
            source, name = options.source, options.name
            promote_drafts, reasoning_opened = options.promote_drafts, options.reasoning_opened
        if source is None:
            raise TemplateError(
                "the parser 'response_template' needs a source: it has no format of its own",
                hint="give it the model's folder, in a config as source: /models/mine",
            )
        found = find_template(source, name)
        super().__init__(
            read_template(found.spec, found.place),
            end_marks=found.end_marks,
            promote_drafts=promote_drafts,
            reasoning_opened=reasoning_opened,
        )
