"""What a reader may ask, over the lake of `guarded` tests, with the answers."""

from __future__ import annotations

QUERIES = {
    "SELECT count(*) FROM silver.shown": [(5,)],
    "SELECT max(id) FROM silver.shown_as_of(3)": [(2,)],
    "SELECT count(*) FROM dev__silver.facts": [(7,)],
    "SHOW TABLES IN dev__silver": [("dev__silver", "facts", False)],
    "SELECT count(*) FROM spark_catalog.silver.facts": [(10,)],
    "WITH a AS (SELECT id FROM silver.shown), b AS (SELECT max(id) AS top FROM a) SELECT top FROM b": [(4,)],
    "SELECT count(*) FROM silver.facts f LEFT JOIN silver.shown s USING (id) WHERE s.id IS NULL": [(5,)],
    "SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY id % 2 ORDER BY id) AS n FROM silver.facts)": [(5,)],
    "SELECT count(*) FROM silver.facts WHERE id IN (SELECT id FROM silver.shown)": [(5,)],
    "SELECT sum(x) FROM silver.facts LATERAL VIEW explode(array(1, 2)) e AS x": [(30,)],
    """SELECT from_json('{"a": "x"}', 'a STRING', map('mode', 'FAILFAST')).a""": [("x",)],
    "SELECT to_csv(struct('x', null), map('sep', ';', 'nullValue', '-'))": [("x;-",)],
    "WITH `a name` AS (SELECT 1 AS `a column`) SELECT `a column` FROM `a name`": [(1,)],
    "SELECT count(*) FROM (SELECT 1 FROM VALUES (1, 2, 3) t(a, b, c) GROUP BY CUBE (a, b, c))": [(8,)],
    "SELECT sum(n) FROM (SELECT CASE WHEN id LIKE '%1' THEN 1 END AS n FROM silver.facts)": [(1,)],
    "SELECT substring('abc' FROM 2 FOR 1) || trim(BOTH 'x' FROM 'xyx') || CAST(date'2020-01-02' AS STRING)": [
        ("by2020-01-02",)
    ],
    "SELECT sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM silver.facts LIMIT 1": [(0,)],
    "SELECT id, count(*) FROM silver.facts GROUP BY ROLLUP (id) HAVING id IS NULL": [(None, 10)],
    "SELECT extract(YEAR FROM timestamp'2020-01-02') + datediff(DAY, date'2020-01-01', date'2020-01-03')": [(2022,)],
    "SELECT first(id) FILTER (WHERE id BETWEEN 3 AND 4) FROM silver.facts": [(3,)],
    "SELECT id, id + 1 FROM silver.facts UNION SELECT 1, 2 ORDER BY 1 LIMIT 1": [(0, 1)],
    "SELECT * FROM (SELECT id % 2 AS odd, id FROM silver.facts) PIVOT (sum(id) FOR odd IN (0, 1))": [(20, 25)],
    "SELECT transform(array(1, 2), x -> x + 1)": [("[2,3]",)],
    "SELECT a FROM VALUES (1) AS t(a)": [(1,)],
    "FROM silver.facts |> WHERE id > 7 |> AGGREGATE count(*) AS n": [(2,)],
    "SHOW TABLES IN silver LIKE 'sh*'": [("silver", "shown", False)],
    "SET spark.sql.shuffle.partitions=3": [("spark.sql.shuffle.partitions", "3")],
    "DESCRIBE silver.facts": [("id", "bigint", None)],
}
