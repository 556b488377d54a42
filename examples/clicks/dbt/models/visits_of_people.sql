with timed as (
    select
        visitor,
        window_start,
        window_end,
        clicks,
        pages,
        entry,
        exit,
        (unix_micros(window_end) - unix_micros(window_start)) / 1000000.0 as seconds
    from {{ source('silver', 'visits') }}
)

-- a visitor with more than 20 clicks and less than 5 seconds between two of them is a bot
select visitor, window_start, clicks, pages, entry, exit, seconds
from timed
where not (clicks > 20 and seconds < 5 * (clicks - 1))
