"""What tests of plans share."""

import pytest
import torch


@pytest.fixture
def same_threads():
    """Whatever number of threads a test asks for, the others compute with their own."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
