-- the orders that live now are worth what was booked: dbt fails if this query has a row
select worth, booked
from (select sum(cents) as worth from {{ source('gold', 'orders') }})
cross join (select sum(booked) as booked from {{ source('silver', 'bookings_daily') }})
where worth <> booked * 100
