"""What somebody who may only read tries through SQL.

`{home}` is the data directory, `{out}` a folder that must not come to be, `{arguments}` those of `reflect`, `{jar}` a
jar, `{table}` a readable table, `{path}` its folder, `{hidden}` a table of records, `{address}` an
address that nobody must ask.
"""

from __future__ import annotations

CODE = {
    "transform": "SELECT TRANSFORM('a') USING 'id' AS (who STRING)",
    "transform in a subquery": "SELECT * FROM (SELECT TRANSFORM(1) USING 'cat' AS (x STRING)) t",
    "transform in a CTE": "WITH t AS (SELECT TRANSFORM(1) USING 'cat' AS (x STRING)) SELECT * FROM t",
    "transform in IN": "SELECT 1 WHERE '1' IN (SELECT TRANSFORM(1) USING 'cat' AS (x STRING))",
    "map": "FROM (SELECT 1 AS a) t MAP a USING 'cat' AS (x STRING)",
    "reflect": "SELECT reflect{arguments}",
    "java_method": "SELECT java_method('java.lang.System', 'getenv', 'PATH')",
    "try_reflect": "SELECT try_reflect{arguments}",
    "qualified reflect": "SELECT builtin.reflect{arguments}",
    "fully qualified reflect": "SELECT system.builtin.reflect{arguments}",
    "quoted reflect": "SELECT `ReFlect`{arguments}",
    "reflect by IDENTIFIER": "SELECT IDENTIFIER('ref' || 'lect'){arguments}",
    "reflect in a lambda": "SELECT transform(array('user.name'), p -> reflect('java.lang.System', 'getProperty', p))",
    "reflect in a pipe": "FROM VALUES (1) AS t(a) |> SELECT reflect{arguments}",
    "reflect in HAVING": "SELECT 1 AS a GROUP BY 1 HAVING reflect{arguments} <> ''",
    "reflect in ORDER BY": "SELECT 1 AS a ORDER BY reflect{arguments}",
    "reflect in a window": "SELECT max(reflect{arguments}) OVER () FROM VALUES (1) t(a)",
    "reflect in VALUES": "SELECT * FROM VALUES (reflect{arguments}) AS t(a)",
    "reflect in EXPLAIN": "EXPLAIN EXTENDED SELECT reflect{arguments}",
    "reflect in a table function": "SELECT * FROM explode(array(reflect{arguments}))",
    "reflect in LATERAL VIEW": "SELECT x FROM VALUES (1) t(a) LATERAL VIEW explode(array(reflect{arguments})) l AS x",
    "execute immediate": 'EXECUTE IMMEDIATE "SELECT reflect{arguments}"',
    "script": "BEGIN SELECT reflect{arguments}; END",
    "harmless script": "BEGIN DECLARE a INT DEFAULT 1; SELECT a; END",
    "session variable": "DECLARE VARIABLE smuggled STRING DEFAULT 'x'",
    "function of a class": "CREATE FUNCTION default.mine AS 'java.lang.String'",
    "temporary function": "CREATE TEMPORARY FUNCTION mine AS 'org.apache.hadoop.hive.ql.udf.UDFLength'",
    "function of a jar": "CREATE FUNCTION silver.mine AS 'x.Y' USING JAR '{jar}'",
    "SQL function": "CREATE OR REPLACE FUNCTION silver.mine() RETURNS STRING RETURN 'x'",
    "temporary SQL function": "CREATE TEMPORARY FUNCTION mine() RETURNS STRING RETURN reflect{arguments}",
    "serde": "CREATE TABLE default.mine (a STRING) ROW FORMAT SERDE 'x.Y'",
    "call": "CALL system.anything()",
    "protobuf descriptor": "SELECT from_protobuf(X'00', 'A', '/etc/passwd')",
    "reflect as a default": "CREATE TABLE scratch_{role}.mine (a STRING DEFAULT reflect{arguments}) USING delta",
    "reflect as a generated column": "CREATE TABLE scratch_{role}.mine (a STRING, b STRING"
    " GENERATED ALWAYS AS (java_method{arguments})) USING delta",
    "a formula as a generated column": "CREATE TABLE scratch_{role}.mine (a INT, b INT GENERATED ALWAYS AS (a + 1))"
    " USING delta",
    "a condition": "CREATE TABLE scratch_{role}.mine (a STRING, CONSTRAINT c CHECK (a <> '')) USING delta",
    "a condition as a property": "CREATE TABLE scratch_{role}.mine (a STRING) USING delta"
    """ TBLPROPERTIES ('delta.constraints.c' = "a = java_method{arguments}")""",
    "a condition as a property, in another case": "CREATE TABLE scratch_{role}.mine USING delta"
    """ TBLPROPERTIES ('DELTA.Constraints.c' = "a = java_method{arguments}") AS SELECT 'x' AS a""",
    "a new condition": "ALTER TABLE scratch_{role}.mine ADD CONSTRAINT c CHECK (java_method{arguments} = a)",
    "a new property": "ALTER TABLE scratch_{role}.mine SET TBLPROPERTIES"
    """ ('delta.constraints.c' = "a = java_method{arguments}")""",
    "a path of functions": "SET PATH = spark_catalog.default, system.builtin",
}
"""Run code."""

FILES = {
    "the pipeline's token": "SELECT * FROM text.`{home}/server/connect.token`",
    "the server's settings": "SELECT * FROM text.`{home}/server/server.conf`",
    "text": "SELECT * FROM text.`/etc/passwd`",
    "csv with a header": "SELECT zzz FROM csv.`/etc/passwd` WITH (header = 'true')",
    "csv": "SELECT * FROM csv.`/etc/passwd`",
    "json": "SELECT * FROM json.`/etc/passwd`",
    "binary file": "SELECT content FROM binaryFile.`/etc/passwd`",
    "a class as format": "SELECT * FROM `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`/etc/passwd`",
    "a folder of parquet": "SELECT * FROM parquet.`{path}`",
    "a Delta table by path": "SELECT * FROM delta.`{path}`",
    "a Delta table by path, qualified": "SELECT * FROM spark_catalog.delta.`{path}`",
    "a Delta table by path and version": "SELECT * FROM delta.`{path}` VERSION AS OF 0",
    "a Delta table by path@version": "SELECT * FROM delta.`{path}@v0`",
    "a path in EXISTS": "SELECT 1 WHERE EXISTS (SELECT * FROM text.`/etc/passwd`)",
    "a path in a scalar subquery": "SELECT (SELECT first(value) FROM text.`/etc/passwd`)",
    "a path in a CTE": "WITH t AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM t",
    "a path in EXPLAIN": "EXPLAIN SELECT * FROM text.`/etc/passwd`",
    "a path in DESCRIBE QUERY": "DESCRIBE QUERY SELECT * FROM csv.`/etc/passwd` WITH (header = 'true')",
    "a path in DESCRIBE": "DESCRIBE TABLE delta.`{path}`",
    "a path in TABLE": "TABLE text.`/etc/passwd`",
    "a path by IDENTIFIER": "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
    "a path in a function's argument": "SELECT * FROM range((SELECT count(*) FROM text.`/etc/passwd`))",
    "a path as an option": "SELECT * FROM {table} WITH (path = '/etc/passwd')",
    "a stream": "SELECT * FROM STREAM {table}",
    "a temporary view of a path": "CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')",
    "a temporary view": "CREATE TEMPORARY VIEW v AS SELECT * FROM text.`/etc/passwd`",
    "a table of a path": "CREATE TABLE default.v USING text LOCATION '/etc/passwd'",
    "a table of an option": "CREATE TABLE default.v USING text OPTIONS (path '/etc/passwd')",
    "a table of a property": "CREATE TABLE default.v (a STRING) USING delta TBLPROPERTIES ('option.path' = '{out}')",
    "a table over JDBC": "CREATE TABLE default.v USING jdbc OPTIONS (url 'jdbc:derby:{home}/metastore', dbtable 'DBS')",
    "an external table": "CREATE EXTERNAL TABLE default.v (a STRING) LOCATION '{out}'",
    "load data": "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE {table}",
    "table_changes": "SELECT * FROM table_changes('{table}', 0)",
    "table_changes by path": "SELECT * FROM table_changes_by_path('{path}', 0)",
    "history by path": "DESCRIBE HISTORY '{path}'",
    "history by delta path": "DESCRIBE HISTORY delta.`{path}`",
    "detail": "DESCRIBE DETAIL {table}",
    "vacuum": "VACUUM {table} RETAIN 0 HOURS",
    "convert": "CONVERT TO DELTA parquet.`{path}`",
    "clone": "CREATE TABLE default.v SHALLOW CLONE delta.`{path}`",
    "restore": "RESTORE TABLE {table} TO VERSION AS OF 0",
    "generate": "GENERATE symlink_format_manifest FOR TABLE {table}",
    "optimize": "OPTIMIZE {table}",
    "file names": "SELECT input_file_name() FROM {table}",
    "python worker logs": "SELECT * FROM python_worker_logs()",
    "a column of files": "SELECT _metadata.file_path FROM {table}",
    "a column of files, qualified": "SELECT f._METADATA FROM {table} f",
    "all columns of files": "SELECT _metadata.* FROM {table}",
    "a column of files in a lambda": "SELECT filter(array(1), x -> f._metadata.file_size > x) FROM {table} f",
    "a column of files in ORDER BY": "SELECT id FROM {table} ORDER BY _metadata.row_index",
    "a table by path in two parts": "SELECT * FROM delta.`{path}/../facts`",
    "changes": "SELECT * FROM {table} CHANGES FROM VERSION 0 TO VERSION 0",
}
"""Read files."""

_XSD = "map('rowTag', 'a', 'rowValidationXSDPath', '{address}/x.xsd')"

NETWORK = {
    "a schema of XML": f"SELECT from_xml('<a>1</a>', 'a string', {_XSD})",
    "a schema of XML, in another case": f"SELECT FROM_XML('<a>1</a>', 'a string', {_XSD})",
    "a schema of XML as a file": "SELECT from_xml('<a>1</a>', 'a string', map('rowValidationXSDPath', '/etc/passwd'))",
    "a schema to infer one": f"SELECT schema_of_xml('<a>1</a>', {_XSD})",
    "options that are worked out": "SELECT from_json('1', 'a int', map(concat('path', ''), '{address}'))",
    "options of a query": "SELECT from_json('1', 'a int', (SELECT map('mode', 'PERMISSIVE')))",
    "an option of the wrong format": "SELECT from_csv('1', 'a int', map('rowValidationXSDPath', '{address}/x.xsd'))",
    "an option that no format has": "SELECT to_json(struct(1 AS a), map('path', '{address}'))",
    "buffers of an option": "SELECT from_csv('1', 'a int', map('maxColumns', '2000000000'))",
    "a type of a document": """SELECT xpath_string('<!DOCTYPE a SYSTEM "{address}/x.dtd"><a>1</a>', 'a')""",
    "a type of a document, as a number": """SELECT xpath_int('<!DOCTYPE a PUBLIC "" "{address}/x"><a>1</a>', 'a')""",
    "a file as an entity": """SELECT xpath('<!DOCTYPE a [<!ENTITY b SYSTEM "/etc/passwd">]><a>&b;</a>', 'a/text()')""",
    "a schema of Avro": "SELECT from_avro(X'00', '\"int\"', map('avroSchemaUrl', '{address}/x.avsc'))",
    "a table of a program": "CREATE TABLE scratch_{role}.mine USING jdbc OPTIONS (url 'jdbc:postgresql:{address}')",
}
"""Make the server ask an address, or send it something."""

SERVER = {
    "add jar": "ADD JAR {jar}",
    "add file": "ADD FILE /etc/passwd",
    "add archive": "ADD ARCHIVE {jar}",
    "list jars": "LIST JARS",
    "list files": "LIST FILES",
    "write a folder": "INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT 'mine'",
    "write a local folder": "INSERT OVERWRITE LOCAL DIRECTORY '{out}' USING csv SELECT 'mine'",
    "write a folder as Hive": "INSERT OVERWRITE DIRECTORY '{out}' STORED AS TEXTFILE SELECT 'mine'",
    "a database elsewhere": "CREATE DATABASE mine LOCATION '{out}'",
    "a database": "CREATE DATABASE mine",
    "all settings": "SET",
    "all settings, explained": "SET -v",
    "a setting of the server": "SET spark.sql.runSQLOnFiles=true",
    "a setting of the warehouse": "SET spark.sql.warehouse.dir={out}",
    "the scheduler's pool": "SET spark.sql.thriftserver.scheduler.pool=default",
    "the time limit": "SET spark.sql.thriftServer.queryTimeout=0",
    "the mode of results": "SET spark.sql.thriftServer.incrementalCollect=false",
    "partitions without end": "SET spark.sql.shuffle.partitions=100000000",
    "a Hadoop setting": "SET fs.file.impl=x.Y",
    "a Hive setting": "SET hiveconf:hive.exec.scratchdir=/tmp/x",
    "a secret": "SET spark.connect.authenticate.token",
    "reset": "RESET",
    "reset one": "RESET spark.sql.runSQLOnFiles",
    "cache": "CACHE TABLE {table}",
    "cache a query": "CACHE TABLE c AS SELECT * FROM {table}",
    "uncache": "UNCACHE TABLE {table}",
    "clear cache": "CLEAR CACHE",
    "refresh": "REFRESH '/'",
    "use another catalog": "SET CATALOG hive",
    "use the records": "USE trace",
    "a property of a database": "CREATE DATABASE mine WITH DBPROPERTIES ('a' = 'b')",
    "a database of dots": "CREATE DATABASE `..`",
    "procedures": "SHOW PROCEDURES",
}
"""Change the server."""

WRITES = {
    "insert into the publications": "INSERT INTO {hidden} SELECT * FROM {hidden}",
    "insert": "INSERT INTO {table} SELECT * FROM {table}",
    "insert overwrite": "INSERT OVERWRITE {table} SELECT * FROM {table}",
    "multi-insert": "FROM {table} t INSERT INTO {table} SELECT t.* INSERT INTO {table} SELECT t.*",
    "drop a view": "DROP VIEW silver.shown",
    "drop a table": "DROP TABLE {table}",
    "drop a database": "DROP DATABASE silver CASCADE",
    "delete": "DELETE FROM {table}",
    "update": "UPDATE {table} SET id = 7",
    "merge": "MERGE INTO {table} t USING {table} s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "truncate": "TRUNCATE TABLE {table}",
    "alter": "ALTER TABLE {table} ADD COLUMNS (x INT)",
    "rename": "ALTER TABLE {table} RENAME TO silver.other",
    "location": "ALTER TABLE {table} SET LOCATION '{out}'",
    "properties": "ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
    "comment": "COMMENT ON TABLE {table} IS 'mine'",
    "database location": "ALTER DATABASE silver SET LOCATION '{out}'",
    "re-point a view": "ALTER VIEW silver.shown AS SELECT 1 AS id",
    "replace a view": "CREATE OR REPLACE VIEW silver.shown AS SELECT 1 AS id",
    "a new view": "CREATE VIEW marts.mine AS SELECT * FROM {hidden}",
    "a view of one's own": "CREATE VIEW scratch_reader.mine AS SELECT * FROM {hidden}",
    "a table in the marts": "CREATE TABLE marts.mine USING delta AS SELECT 1 AS a",
    "a replaced table": "CREATE OR REPLACE TABLE {table} USING delta AS SELECT 1 AS a",
    "a table in default": "CREATE TABLE default.mine USING delta AS SELECT 1 AS a",
    "another's scratch": "CREATE TABLE scratch_writer.mine USING delta AS SELECT 1 AS a",
    "scratch elsewhere": "CREATE TABLE scratch_reader.mine USING delta LOCATION '{out}' AS SELECT 1 AS a",
    "scratch by an option": "CREATE TABLE scratch_reader.mine USING delta OPTIONS (path '{out}') AS SELECT 1 AS a",
    "scratch as csv": "CREATE TABLE scratch_reader.mine USING csv AS SELECT 1 AS a",
    "scratch by a path": "CREATE TABLE delta.`{out}` USING delta AS SELECT 1 AS a",
    "analyze": "ANALYZE TABLE {table} COMPUTE STATISTICS",
    "repair": "MSCK REPAIR TABLE {table}",
    **{
        f"the name {name}": f"CREATE TABLE scratch_reader.`{name}` USING delta AS SELECT 1 AS a"
        for name in ("..", ".", "a.b", "%2e%2e", "..%2f..", "a b", "a$b", "ä")
    },
    "the name .., of one's own database": "CREATE TABLE spark_catalog.scratch_reader.`..` (a INT) USING delta",
    "the name .. alone": "CREATE TABLE `..` (a INT) USING delta",
    "an insert into %2e": "INSERT INTO scratch_reader.`%2e` SELECT 1",
    "a copy of a table": "CREATE TABLE scratch_reader.mine LIKE {table}",
    "a property that no list has": "CREATE TABLE scratch_reader.mine (a INT) USING delta TBLPROPERTIES ('x' = 'y')",
}
"""Write where one may only read."""

HIDDEN = {
    "the publications": "SELECT * FROM {hidden}",
    "qualified": "SELECT * FROM spark_catalog.{hidden}",
    "in another case": "SELECT * FROM TRACE.Published",
    "a join": "SELECT * FROM {table} t JOIN {hidden} p ON true",
    "a subquery": "SELECT * FROM {table} WHERE id IN (SELECT id FROM {hidden})",
    "a scalar subquery": "SELECT (SELECT max(id) FROM {hidden})",
    "a nested scalar subquery": "SELECT 1 + (SELECT max(id) FROM {table} WHERE id > (SELECT min(id) FROM {hidden}))",
    "a CTE": "WITH t AS (SELECT * FROM {hidden}) SELECT * FROM t",
    "a CTE in a subquery": "SELECT * FROM (WITH t AS (SELECT * FROM {hidden}) SELECT * FROM t)",
    "a recursive CTE": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT 2 FROM t JOIN {hidden} ON n < 2) TABLE t",
    "a union": "SELECT id FROM {table} UNION ALL SELECT id FROM {hidden}",
    "a lateral join": "SELECT * FROM {table} t, LATERAL (SELECT max(id) FROM {hidden})",
    "an argument": "SELECT * FROM silver.shown_as_of((SELECT max(id) FROM {hidden}))",
    "a version": "SELECT * FROM {hidden} VERSION AS OF 0",
    "TABLE": "TABLE {hidden}",
    "a pipe": "FROM {hidden} |> SELECT id",
    "explain": "EXPLAIN SELECT * FROM {hidden}",
    "describe": "DESCRIBE EXTENDED {hidden}",
    "describe a query": "DESCRIBE QUERY SELECT * FROM {hidden}",
    "columns": "SHOW COLUMNS IN {hidden}",
    "show create": "SHOW CREATE TABLE {hidden}",
    "another user's scratch": "SELECT * FROM scratch_writer.theirs",
    "a copy": "CREATE TABLE scratch_reader.copy USING delta AS SELECT * FROM {hidden}",
    "a copy in a CTE": "CREATE TABLE scratch_reader.copy AS WITH t AS (SELECT * FROM {hidden}) SELECT * FROM t",
    "an insert": "INSERT INTO scratch_reader.mine SELECT id FROM {hidden}",
    "an insert's condition": "INSERT INTO scratch_reader.mine REPLACE ON (id IN (SELECT id FROM {hidden})) SELECT 1",
    "an insert's range": "INSERT INTO scratch_reader.mine REPLACE WHERE id IN (SELECT id FROM {hidden}) SELECT 1",
    "history": "DESCRIBE HISTORY {hidden}",
    "metadata table": "SELECT * FROM {hidden}.history",
    "a hint": "SELECT /*+ BROADCAST(p) */ * FROM {hidden} p",
    "a sample": "SELECT * FROM {hidden} TABLESAMPLE (10 ROWS)",
    "a pivot": "SELECT * FROM (SELECT id, id AS k FROM {hidden}) PIVOT (max(id) FOR k IN (1, 2))",
    "filter of an aggregate": "SELECT count(*) FILTER (WHERE id IN (SELECT id FROM {hidden})) FROM {table}",
    "a history": "SELECT * FROM silver.facts_history",
    "a trace": "SELECT * FROM trace.flights_updates",
    "a plan": "EXPLAIN EXTENDED SELECT * FROM silver.shown",
    "a plan with its code": "EXPLAIN CODEGEN SELECT * FROM {table}",
    "an earlier version": "SELECT * FROM {table} VERSION AS OF 0",
    "an earlier time": "SELECT * FROM {table} TIMESTAMP AS OF '2020-01-01'",
    "an earlier version by its name": "SELECT * FROM silver.`facts@v0`",
    "an earlier time by its name": "SELECT * FROM silver.`facts@20200101000000000`",
    "an earlier version as an option": "SELECT * FROM {table} WITH (versionAsOf = 0)",
    "an earlier time as an option": "SELECT * FROM {table} WITH (`timestampAsOf` = '2020-01-01')",
    "an earlier version of the system": "SELECT * FROM {table} FOR SYSTEM_VERSION AS OF 0",
    "an earlier time of the system": "SELECT * FROM {table} FOR SYSTEM_TIME AS OF current_timestamp()",
    "an earlier version in a subquery": "SELECT (SELECT count(*) FROM {table} VERSION AS OF 0)",
    "a copy of an earlier version": "CREATE TABLE scratch_reader.copy AS SELECT * FROM {table} VERSION AS OF 0",
}
"""Read what is not published."""


def _chain(step: str, first: str = "SELECT 1 AS c, 2 AS d", last: str = "SELECT count(*) FROM a30") -> str:
    """Thirty common table expressions, each made of the one before: `{one}` in `step`."""
    more = "".join(f", a{n} AS ({step.format(one=f'a{n - 1}')})" for n in range(1, 31))
    return f"WITH a0 AS ({first}){more} {last}"


_LETTERS = ", ".join(f"c{n}" for n in range(25))

LARGE = {
    "cross joins": _chain("SELECT l.c, r.d FROM {one} l CROSS JOIN {one} r"),
    "cross joins of a table": _chain("SELECT l.id FROM {one} l, {one} r", "SELECT id FROM silver.facts"),
    "cross joins without names": _chain("SELECT 1 AS c FROM {one} CROSS JOIN {one}"),
    "in windows": _chain(
        "SELECT count(*) OVER w AS c FROM {one} WINDOW w AS (PARTITION BY (SELECT max(c) FROM {one}))"
    ),
    "cross joins that nothing reads": _chain("SELECT l.c FROM {one} l, {one} r", last="SELECT 1"),
    "unions": _chain("SELECT * FROM {one} UNION ALL SELECT * FROM {one}"),
    "queries in queries": _chain("SELECT c FROM {one} WHERE c IN (SELECT c FROM {one})"),
    "queries as values": _chain("SELECT (SELECT max(c) FROM {one}) + (SELECT min(c) FROM {one}) AS c"),
    "common table expressions in each other": _chain("WITH b AS (SELECT * FROM {one}) SELECT l.c FROM b l, b r"),
    "in a lateral join": _chain("SELECT l.c FROM {one} l, LATERAL (SELECT c FROM {one})"),
    "in a pipe": _chain("FROM {one} |> CROSS JOIN {one} |> SELECT 1 AS c"),
    "columns": _chain("SELECT *, * FROM {one}"),
    "columns of a join": "SELECT * FROM " + ", ".join(f"silver.facts t{n}" for n in range(300)),
    "fields": _chain("SELECT struct(c, c) AS c FROM {one}"),
    "fields by name": _chain("SELECT named_struct('l', c, 'r', c) AS c FROM {one}"),
    "a cube": f"SELECT 1 FROM VALUES (1) t(c) GROUP BY CUBE ({_LETTERS})",
    "a cube behind a comment": f"SELECT 1 FROM VALUES (1) t(c) GROUP BY CUBE /* () */ ({_LETTERS})",
    "a cube of sets": f"SELECT 1 FROM VALUES (1) t(c) GROUP BY GROUPING SETS (CUBE ({_LETTERS}), (c1))",
    "cubes": "SELECT 1 FROM VALUES (1) t(c) GROUP BY " + ", ".join("CUBE (c1, c2, c3, c4, c5)" for _ in range(6)),
    "a cube, as it was written once": f"SELECT 1 FROM VALUES (1) t(c) GROUP BY {_LETTERS} WITH CUBE",
    "brackets": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "sums": "SELECT " + " + ".join(["1"] * 600),
    "a long union": " UNION ALL ".join(["SELECT 1"] * 600),
    "a long text": f"SELECT '{'x' * 1_100_000}'",
    "an insert": "INSERT INTO scratch_{role}.mine " + _chain("SELECT l.c, r.d FROM {one} l, {one} r"),
}
"""Statements that become large when they are resolved."""

ENDLESS = {
    "a regular expression": "SELECT count(*) FROM range(2) WHERE repeat('a', 5000) || id RLIKE 'a*a*a*a*a*a*a*a*b'",
    "a pattern": "SELECT count(*) FROM range(2) WHERE repeat('a', 5000) || id LIKE '%a%a%a%a%a%a%a%a%b'",
    "a constant": "SELECT aggregate(sequence(1, 1000000), 0L, (a, x) -> a +"
    " aggregate(sequence(1, 1000000), 0L, (b, y) -> b + y))",
}
"""Statements that compute on one row without end."""

_NESTED = "SELECT " + ", ".join(f"id AS c{n}" for n in range(400)) + " FROM range(3)"
for _ in range(90):
    _NESTED = "SELECT " + ", ".join(f"c{n} + 1 AS c{n}" for n in range(400)) + f" FROM ({_NESTED})"
RESOLVED_FOR_LONG = _NESTED
"""A statement within the bounds of size, of which Spark resolves a level a round, for minutes."""

HUNGRY = {
    "a list": "SELECT size(collect_list(repeat('x', 10000 + CAST(id % 2 AS INT)))) FROM range(1000000000)",
    "a text": "SELECT length(repeat('x', 2147483000 - CAST(id AS INT))) FROM range(1)",
    "an array": "SELECT size(array_repeat(id, 2000000000)) FROM range(1)",
    "arrays": "SELECT size(transform(sequence(1, 1000000), x -> sequence(1, 1000000))) FROM range(2)",
    "a text that is planned": "SELECT length(repeat('x', 2147483000))",
}
"""Statements that need more memory than there is."""

ATTACKS = {
    f"{kind}: {name}": statement
    for kind, group in (
        *(("code", CODE), ("files", FILES), ("network", NETWORK), ("server", SERVER)),
        *(("writes", WRITES), ("hidden", HIDDEN)),
    )
    for name, statement in group.items()
}

WRITERS = {
    "a condition as a property": "ALTER TABLE marts_staging.mine SET TBLPROPERTIES"
    """ ('delta.constraints.c' = "java_method{arguments} = ''")""",
    "a table with a condition": "CREATE TABLE marts_staging.mine (a STRING) USING delta"
    """ TBLPROPERTIES ('delta.constraints.c' = "java_method{arguments} = a")""",
    "a view with settings": "CREATE VIEW marts_staging.mine TBLPROPERTIES"
    " ('view.sqlConfig.spark.sql.runSQLOnFiles' = 'true') AS SELECT 1 AS a",
    "a view of a file": "CREATE VIEW marts_staging.mine AS SELECT * FROM text.`/etc/passwd`",
    "a view that runs code": "CREATE VIEW marts_staging.mine AS SELECT reflect{arguments} AS a",
    "a view that runs code later": "ALTER VIEW marts_staging.mine AS SELECT reflect{arguments} AS a",
    "an update that runs code": "UPDATE marts_staging.mine SET a = reflect{arguments}",
    "a deletion that runs code": "DELETE FROM marts_staging.mine WHERE reflect{arguments} = ''",
    "a merge that runs code": "MERGE INTO marts_staging.mine t USING (SELECT 1 AS a) s ON t.a = s.a"
    " WHEN MATCHED THEN UPDATE SET a = reflect{arguments}",
    "a merge into what runs publish": "MERGE INTO silver.facts t USING (SELECT 1 AS id) s ON t.id = s.id"
    " WHEN NOT MATCHED THEN INSERT *",
    "a column with code": "ALTER TABLE marts_staging.mine ADD COLUMNS (b STRING DEFAULT reflect{arguments})",
    "a view in what runs publish": "CREATE OR REPLACE VIEW silver.shown AS SELECT 1 AS id",
    "the scratch of others": "INSERT INTO scratch_reader.kept SELECT 1",
    "another environment": "CREATE TABLE dev__silver.mine USING delta AS SELECT 1 AS a",
    "a comment on what runs publish": "COMMENT ON DATABASE silver IS 'mine'",
    "the publication": "DELETE FROM trace.published",
    "the publication, truncated": "TRUNCATE TABLE trace.published",
    "a table of dots": "CREATE TABLE marts_staging.`..` USING delta AS SELECT 1 AS a",
    "a view of percent signs": "CREATE VIEW marts_staging.`%2e%2e` AS SELECT 1 AS a",
    "a database that is a path": "CREATE DATABASE `..%2fmine`",
}
"""What a writer tries beyond that."""
