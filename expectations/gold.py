"""The gate after `compact`: the states that the run would publish are exact. A failure stops the run before the
publication moves."""

from expectations.invariant import Invariant

_AGAIN = (
    "Nothing was published; gold reads as before the run. Run the interval again; if it fails again, report it with the"
    " examples below."
)

INVARIANTS = (
    Invariant("repeated_entities", "Every entity has one current state.", _AGAIN),
    Invariant("states_of_wrong_width", "A state has one value and one seen flag for every component.", _AGAIN),
    Invariant("states_without_deltas", "Every state is made of at least one delta.", _AGAIN),
    Invariant("states_beyond_reached", "No state is made of future-dated deltas.", _AGAIN),
    Invariant("closings_of_nothing", "Every closing row closes a state that is published.", _AGAIN),
    Invariant(
        "changed_without_revision",
        "A state that replaces a published one carries the next revision, and closes the one it replaces.",
        _AGAIN,
    ),
    Invariant(
        "changes_at_wrong_time",
        "Every change of this run is known from one tick before the new publication.",
        _AGAIN,
    ),
    Invariant(
        "deltas_accepted",
        "Every accepted delta is in exactly one entity's state or chain: their counts add up to the rows of the trace.",
        _AGAIN,
        "equal",
        "deltas_folded",
    ),
    Invariant(
        "components_out_of_balance",
        "Each additive whole-number component gains, over all entities, exactly what the rows that came and went add, "
        "but for those that a chain refuses.",
        _AGAIN,
    ),
    Invariant(
        "chains_without_end",
        "Every chain that changed has one segment that ends it, with one checkpoint and the deltas pending after it.",
        _AGAIN,
    ),
    Invariant(
        "segments_at_wrong_time",
        "Every change of a chain's segment is known from one tick before the new publication.",
        _AGAIN,
    ),
    Invariant(
        "states_off_their_row",
        "If a row has the whole vector, the state equals the vector of the entity's last row.",
        _AGAIN,
    ),
)
