"""All cases, in the order of the table."""

import cases_input
import cases_state

ALL = cases_input.CASES + cases_state.CASES
