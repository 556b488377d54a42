package org.apache.spark.sql.hive.thriftserver.tidemark

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.catalog.{HiveTableRelation, SessionCatalog}
import org.apache.spark.sql.catalyst.expressions.{Expression, SubqueryExpression}
import org.apache.spark.sql.catalyst.plans.logical.{SQLFunctionNode => _, _}
import org.apache.spark.sql.execution.command.{DescribeQueryCommand, ExplainCommand, SetCommand}
import org.apache.spark.sql.execution.datasources.LogicalRelation

/** A statement that its role may not run. Its text is what the user sees. */
class NotAllowed(text: String) extends RuntimeException(text, null, false, false) {
  override def toString: String = getMessage
}

/** What a principal may say. Whatever is not listed is refused.
  *
  * First the form, before anything is resolved: each node, function and name of the parsed statement. So no file is
  * opened, not even to say that it is none. Then, for a reader, the rights: the resolved queries of the statement, down
  * to the relations. A published view or table function is read with its owner's rights: what is under it is not asked.
  *
  * @param catalog of the session
  * @param analyze resolves a query without running it
  * @param tables what a reader reads: patterns of `database.table`, with `*` in a name
  * @param published databases that no login writes, beside those of environments, whose names have `__`
  * @param ensure makes a scratch database
  */
class Rules(
    catalog: SessionCatalog, analyze: LogicalPlan => LogicalPlan, principal: Principal, tables: Seq[String],
    published: Set[String], ensure: String => Unit) {
  import Rules._

  private val readable = tables.map(_.replace("*", "\\w*"))
  /** Databases of which every table is readable. */
  private val databases = readable.filter(_.endsWith(".\\w*")).map(_.stripSuffix(".\\w*"))

  /** The statement, if it may run. A reader's query comes back resolved: what was judged is what runs, and Spark need not
    * resolve it again.
    */
  def check(statement: LogicalPlan): LogicalPlan = {
    visit(statement)
    if (principal.isWriter) statement
    else queries(statement) match {
      case Seq(query) if query eq statement => judged(query)
      case parts =>
        parts.foreach(judged)
        statement
    }
  }

  // --- the form ---------------------------------------------------------------------------------------------------

  /** Everything in a statement, whether it counts as a child or not. */
  private def visit(part: Any): Unit = part match {
    case plan: LogicalPlan =>
      node(plan)
      plan.productIterator.foreach(visit)
    case expression: Expression =>
      term(expression)
      expression.productIterator.foreach(visit)
    case several: Iterable[_] => several.foreach(visit)
    case other: Product => other.productIterator.foreach(visit)
    case _ =>
  }

  private def node(plan: LogicalPlan): Unit = {
    val kind = plan.getClass.getSimpleName.stripSuffix("$")
    val writes = Writing(kind) || principal.isWriter && WritersOwn(kind)
    if (!writes && !Reading(kind) && !(principal.isWriter && WritersLook(kind))) refuse(s"the statement or part $kind")
    plan match {
      case relation: UnresolvedRelation =>
        name(relation.multipartIdentifier)
        // the parser notes in an option that the target of an insert is written
        val options = relation.options.keySet.asScala - UnresolvedRelation.REQUIRED_WRITE_PRIVILEGES
        if (options.nonEmpty || relation.isStreaming) refuse("a relation with options, or a stream")
      case table: UnresolvedTable => described(table.multipartIdentifier)
      case table: UnresolvedTableOrView => described(table.multipartIdentifier)
      case view: UnresolvedView => name(view.multipartIdentifier)
      case target: UnresolvedIdentifier => name(target.nameParts)
      case database: UnresolvedNamespace => database.multipartIdentifier.foreach(word)
      case function: UnresolvedTableValuedFunction => tableFunction(function)
      case set: SetCommand => setting(set)
      case used: SetCatalogAndNamespace => use(used)
      case made: CreateNamespace if made.properties.contains("location") => refuse("LOCATION")
      case made: CreateTableAsSelect if made.writeOptions.nonEmpty => refuse("OPTIONS")
      case made: ReplaceTableAsSelect if made.writeOptions.nonEmpty => refuse("OPTIONS")
      case _ =>
    }
    if (writes) target(plan)
  }

  private def term(expression: Expression): Unit = expression match {
    case spec: UnresolvedTableSpec =>
      if (spec.location.nonEmpty || spec.external || spec.serde.nonEmpty || spec.optionExpression.options.nonEmpty)
        refuse("a table with LOCATION, OPTIONS or a row format")
      if (spec.provider.exists(_.toLowerCase != "delta")) refuse(s"a table USING ${spec.provider.get}")
      spec.properties.keys.find(!_.toLowerCase.matches("(delta|tidemark)\\..*|comment"))
        .foreach(key => refuse(s"the table property $key"))
    case function: UnresolvedFunction => scalarFunction(function.nameParts)
    case generator: UnresolvedGenerator => scalarFunction(generator.name.nameParts)
    case other =>
      val kind = other.getClass
      if (!kind.getName.startsWith("org.apache.spark.sql.catalyst.") || NoTerm(kind.getSimpleName))
        refuse(s"the expression ${kind.getSimpleName}")
  }

  private def scalarFunction(parts: Seq[String]): Unit = {
    val name = parts.last.toLowerCase
    val known = parts.size == 1 && FunctionRegistry.builtin.functionExists(FunctionIdentifier(name))
    if (!known || NoFunction(name)) refuse(s"the function ${parts.mkString(".")}")
  }

  private def tableFunction(function: UnresolvedTableValuedFunction): Unit = {
    val name = function.name.map(_.toLowerCase)
    // what an argument reads would be taken for what the function's owner reads
    if (function.functionArgs.exists(_.exists(_.isInstanceOf[SubqueryExpression]))) refuse("a query as argument")
    val allowed = name match {
      case Seq(builtin) =>
        TableFunctionRegistry.builtin.functionExists(FunctionIdentifier(builtin)) && !NoFunction(builtin)
      case _ => mayRead(resolved(name))
    }
    if (!allowed) refuse(s"the table function ${name.mkString(".")}")
  }

  private def word(part: String): Unit =
    if (!part.matches("[^/\\\\:]+")) refuse(s"the name `$part`")

  /** A name that only the catalog can resolve: no path, no format, no table of a table. */
  private def name(parts: Seq[String]): Unit = {
    parts.foreach(word)
    val database = parts match {
      case Seq(_) => None
      case Seq(database, _) => Some(database)
      case Seq(catalog, database, _) if catalog.equalsIgnoreCase("spark_catalog") => Some(database)
      case _ => refuse(s"the name ${parts.mkString(".")}")
    }
    // a scratch database comes into being with its first table
    if (!database.forall(d => d.equalsIgnoreCase(principal.scratch) || catalog.databaseExists(d)))
      refuse(s"the name ${parts.mkString(".")}, of which the first part is no database")
  }

  private def described(parts: Seq[String]): Unit = {
    name(parts)
    if (!mayRead(resolved(parts))) refuse(s"the table ${parts.mkString(".")}")
  }

  private def resolved(parts: Seq[String]): TableIdentifier = {
    val database = if (parts.size > 1) parts(parts.size - 2) else catalog.getCurrentDatabase
    TableIdentifier(parts.last.toLowerCase, Some(database.toLowerCase))
  }

  private def setting(set: SetCommand): Unit = set.kv match {
    case Some((key, value)) if value.forall(Settings.mayBe(key, _, principal)) && Settings.knows(key, principal) =>
    case Some((key, value)) => refuse(s"the setting $key${value.fold("")(" = " + _)}")
    case None => refuse("a list of all settings")
  }

  private def use(statement: SetCatalogAndNamespace): Unit = statement.child match {
    case UnresolvedNamespace(Seq(database), _) if database.equalsIgnoreCase("default") =>
    case UnresolvedNamespace(Seq(database), _) if mayUse(database.toLowerCase) =>
    case other => refuse(s"USE of $other")
  }

  private def mayUse(database: String): Boolean =
    principal.isWriter || database == principal.scratch || databases.exists(database.matches)

  /** What a statement writes must be the principal's to write. */
  private def target(plan: LogicalPlan): Unit = {
    val written = plan match {
      case insert: InsertIntoStatement => insert.table
      case replacement: OverwriteByExpression => replacement.table
      case command => command.children.head
    }
    val database = written.collectFirst {
      case relation: UnresolvedRelation => resolved(relation.multipartIdentifier).database.get
      case table: UnresolvedTable => resolved(table.multipartIdentifier).database.get
      case table: UnresolvedTableOrView => resolved(table.multipartIdentifier).database.get
      case view: UnresolvedView => resolved(view.multipartIdentifier).database.get
      case identifier: UnresolvedIdentifier => resolved(identifier.nameParts).database.get
      case UnresolvedNamespace(Seq(database), _) => database.toLowerCase
    }.getOrElse(refuse(s"a target that is no name: $written"))
    val own = database == principal.scratch
    if (!own && (!principal.isWriter || published(database) || database.contains("__") || database.startsWith("scratch_")))
      refuse(s"a write to the database $database")
    if (own) ensure(principal.scratch)
  }

  // --- the rights -------------------------------------------------------------------------------------------------

  private def queries(statement: LogicalPlan): Seq[LogicalPlan] = statement match {
    case explained: ExplainCommand => queries(explained.logicalPlan)
    case described: DescribeQueryCommand => Seq(described.plan)
    case made: CreateTableAsSelect => Seq(made.query)
    case made: ReplaceTableAsSelect => Seq(made.query)
    case insert: InsertIntoStatement if insert.replaceCriteriaOpt.nonEmpty => refuse("INSERT … REPLACE")
    case insert: InsertIntoStatement => Seq(insert.query)
    case _: Command => Nil
    case query => Seq(query)
  }

  private def judged(query: LogicalPlan): LogicalPlan = {
    val resolved = analyze(query)
    judge(resolved)
    resolved
  }

  private def judge(plan: LogicalPlan): Unit = plan match {
    case view: View if !view.isTempView => read(view.desc.identifier)
    case body: SQLFunctionNode => read(TableIdentifier(body.function.name.funcName, body.function.name.database))
    case relation: LogicalRelation => relation.catalogTable.fold[Unit](refuse("files"))(table => read(table.identifier))
    case relation: HiveTableRelation => read(relation.tableMeta.identifier)
    case leaf if leaf.children.isEmpty && !Leaves(leaf.getClass.getSimpleName) =>
      refuse(s"the relation ${leaf.getClass.getSimpleName}")
    case other =>
      other.children.foreach(judge)
      other.expressions.foreach(_.foreach {
        case subquery: SubqueryExpression => judge(subquery.plan)
        case _ =>
      })
  }

  private def read(table: TableIdentifier): Unit =
    if (!mayRead(table)) refuse(s"the table ${table.unquotedString}")

  private def mayRead(table: TableIdentifier): Boolean = principal.isWriter || {
    val database = table.database.getOrElse("").toLowerCase
    database == principal.scratch || readable.exists(s"$database.${table.table.toLowerCase}".matches)
  }

  private def refuse(what: String): Nothing = throw new NotAllowed(
    s"not_allowed: expected a statement that the role ${principal.role} may run, found $what; nothing was run. " +
      (if (principal.isWriter) s"A writer reads the lake and writes databases beside ${published.toSeq.sorted.mkString(", ")}, "
       else s"A reader reads silver, gold, marts, quality and pins, and writes tables of ${principal.scratch}, ") +
      "by names of the catalog and with Spark's own functions; what else a job needs goes through `tidemark` commands or " +
      "Spark Connect")
}

object Rules {
  private def names(text: String): Set[String] = text.split("\\s+").filter(_.nonEmpty).toSet

  private val Reading = names("""
    Project Filter Aggregate Join LateralJoin Sort GlobalLimit LocalLimit LimitAll Offset Distinct Deduplicate Union Except
    Intersect SubqueryAlias UnresolvedSubqueryColumnAliases UnresolvedRelation RelationTimeTravel UnresolvedInlineTable
    OneRowRelation UnresolvedWith WithWindowDefinition Window Generate Pivot Unpivot Sample UnresolvedHint
    UnresolvedTableValuedFunction UnresolvedTVFAliases UnresolvedHaving UnresolvedQualify LocalRelation PipeOperator
    ExplainCommand DescribeQueryCommand DescribeRelation DescribeColumn DescribeFunction ShowTables ShowViews ShowColumns
    ShowTableColumnsCommand ShowNamespaces ShowNamespacesCommand ShowFunctions ShowCurrentNamespaceCommand
    ShowCatalogsCommand SetCatalogAndNamespace SetCommand
    UnresolvedTable UnresolvedTableOrView UnresolvedView UnresolvedIdentifier UnresolvedNamespace UnresolvedFunctionName
    CurrentNamespace ResolvedNamespace""")

  private val Writing = names("CreateTable ReplaceTable CreateTableAsSelect ReplaceTableAsSelect InsertIntoStatement DropTable")

  private val WritersOwn = names("""
    DeleteFromTable UpdateTable MergeIntoTable TruncateTable CreateView AlterViewAs DropView CreateNamespace DropNamespace
    OverwriteByExpression AddColumns DropColumns RenameColumn SetTableProperties UnsetTableProperties CommentOnTable CommentOnNamespace""")

  private val WritersLook = names("""
    DescribeDeltaHistory ShowTablesExtended ShowTableProperties ShowCreateTable RefreshTable DescribeNamespace
    UpdateAction InsertAction DeleteAction""")

  /** Relations of a resolved query that hold nothing of the lake. */
  private val Leaves = names("LocalRelation OneRowRelation Range CTERelationRef UnionLoopRef EmptyRelation ResolvedInlineTable")

  private val NoTerm = names("""
    ExpressionWithUnresolvedIdentifier FunctionTableSubqueryArgumentExpression CallMethodViaReflection PythonUDF ScalaUDF""")

  /** Spark's own functions that run code, or tell of files. */
  private val NoFunction = names("""
    reflect java_method try_reflect from_protobuf to_protobuf input_file_name input_file_block_start
    input_file_block_length python_worker_logs""")
}

/** Settings that a session may change for itself: they change how a query is worked out, within limits. */
object Settings {
  private val session = Map(
    "spark.sql.session.timezone" -> "[\\w/+:-]{1,40}",
    "spark.sql.shuffle.partitions" -> "[1-9]\\d{0,2}",
    "spark.sql.autobroadcastjointhreshold" -> "-1|0",
    "spark.sql.adaptive.enabled" -> "true|false",
    "spark.sql.codegen.wholestage" -> "true|false",
    "spark.sql.codegen.factorymode" -> "FALLBACK|NO_CODEGEN",
    "spark.sql.ansi.enabled" -> "true|false")
  private val writer = Map("spark.databricks.delta.commitinfo.usermetadata" -> "(?s).*")

  def knows(key: String, principal: Principal): Boolean = pattern(key, principal).isDefined

  def mayBe(key: String, value: String, principal: Principal): Boolean = pattern(key, principal).exists(value.matches)

  private def pattern(key: String, principal: Principal) =
    session.get(key.toLowerCase).orElse(writer.get(key.toLowerCase).filter(_ => principal.isWriter))
}
