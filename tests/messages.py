"""What every table of bad arguments asserts of its lines."""

import re

import pytest


def calls(table):
    """The cases of a table: by exception, the parts of its message in their order, and a call."""
    return [
        pytest.param((call, exception, message), id=message[:60])
        for exception, lines in table.items()
        for message, call in lines.items()
    ]


def check_message(call, exception, message):
    """The call raises exactly this exception, with the parts of the message in their order."""
    with pytest.raises(exception) as caught:
        call()
    assert type(caught.value) is exception
    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)
