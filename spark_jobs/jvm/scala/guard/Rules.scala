package org.apache.spark.sql.hive.thriftserver.tidemark

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.catalog.{HiveTableRelation, SessionCatalog}
import org.apache.spark.sql.catalyst.expressions.{
  Expression,
  FileSourceMetadataAttribute,
  SubqueryExpression,
  UnresolvedNamedLambdaVariable
}
import org.apache.spark.sql.catalyst.plans.logical.{SQLFunctionNode => _, _}
import org.apache.spark.sql.execution.command.{DescribeQueryCommand, SetCommand}
import org.apache.spark.sql.execution.datasources.LogicalRelation

/** A statement that its role may not run. Its text is what the user sees. */
class NotAllowed(text: String) extends RuntimeException(text, null, false, false) {
  override def toString: String = getMessage
}

/** What a principal may say. Whatever is not listed is refused.
  *
  * First the form, before anything is resolved: the size of the parsed statement, then each node, expression, function
  * and name. So no file is opened, not even to say that it is none. Then, for a reader, the rights: the resolved queries
  * of the statement, down to the relations. A published view or table function is read with its owner's rights: what is
  * under it is not asked.
  *
  * @param catalog of the session
  * @param analyze resolves a query without running it
  * @param tables what a reader reads: patterns of `database.table`, with `*` in a name
  * @param unpublished tables among them that show rows before their publication: patterns, too
  * @param published databases that no login writes, beside those of environments, whose names have `__`
  * @param ensure makes a scratch database
  */
class Rules(
    catalog: SessionCatalog,
    analyze: LogicalPlan => LogicalPlan,
    principal: Principal,
    tables: Seq[String],
    unpublished: Seq[String],
    published: Set[String],
    ensure: String => Unit
) {
  import Rules._

  private val readable = tables.map(_.replace("*", "\\w*"))
  private val hidden = unpublished.map(_.replace("*", "\\w*"))

  /** Databases of which every table is readable. */
  private val databases = readable.filter(_.endsWith(".\\w*")).map(_.stripSuffix(".\\w*"))

  /** The statement, if it may run. A reader's query comes back resolved: what was judged is what runs, and Spark need not
    * resolve it again.
    */
  def check(statement: LogicalPlan): LogicalPlan = {
    Bounds.fault(statement).foreach(fault => throw Bounds.refusal(fault))
    visit(statement)
    val allowed =
      if (principal.isWriter) statement
      else queries(statement) match {
        case Seq(query) if query eq statement => judged(query)
        case parts =>
          parts.foreach(judged)
          statement
      }
    // a scratch database comes into being with its first table
    if (writes(statement) && databaseOf(statement) == principal.scratch) ensure(principal.scratch)
    allowed
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
    if (!writes(plan) && !Reading(kind) && !(principal.isWriter && WritersLook(kind)))
      refuse(s"the statement or part $kind")
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
      case made: CreateNamespace => properties(made.properties)
      case made: CreateView => properties(made.properties)
      case changed: SetTableProperties => properties(changed.properties)
      case made: CreateTableAsSelect if made.writeOptions.nonEmpty => refuse("OPTIONS")
      case made: ReplaceTableAsSelect if made.writeOptions.nonEmpty => refuse("OPTIONS")
      case _ =>
    }
    if (writes(plan)) target(plan)
  }

  private def writes(plan: LogicalPlan): Boolean = {
    val kind = plan.getClass.getSimpleName
    Writing(kind) || principal.isWriter && WritersOwn(kind)
  }

  /** Delta keeps conditions of rows and formulas of columns in properties, and computes them with every function. */
  private def properties(set: Map[String, String]): Unit =
    set.keys.find(key => !Properties(key.toLowerCase)).foreach(key => refuse(s"the property $key"))

  private def term(expression: Expression): Unit = expression match {
    case spec: UnresolvedTableSpec =>
      if (spec.location.nonEmpty || spec.external || spec.serde.nonEmpty || spec.optionExpression.options.nonEmpty)
        refuse("a table with LOCATION, OPTIONS or a row format")
      if (spec.provider.exists(_.toLowerCase != "delta")) refuse(s"a table USING ${spec.provider.get}")
      properties(spec.properties)
    case column: ColumnDefinition if column.generationExpression.nonEmpty =>
      refuse(s"the generated column ${column.name}")
    case attribute: UnresolvedAttribute => column(attribute.nameParts)
    case variable: UnresolvedNamedLambdaVariable => column(variable.nameParts)
    case star: UnresolvedStar => star.target.foreach(column)
    case function: UnresolvedFunction => scalarFunction(function.nameParts, function.arguments)
    case generator: UnresolvedGenerator => scalarFunction(generator.name.nameParts, generator.children)
    case other =>
      val kind = other.getClass.getSimpleName.stripSuffix("$")
      if (!Terms(kind)) refuse(s"the expression $kind")
  }

  /** Files of a table are columns of it that a star leaves out. */
  private def column(parts: Seq[String]): Unit =
    if (parts.exists(_.equalsIgnoreCase("_metadata"))) refuse("the column _metadata")

  private def scalarFunction(parts: Seq[String], arguments: Seq[Expression]): Unit = parts.map(_.toLowerCase) match {
    case Seq(name) => Functions.fault(name, arguments).foreach(refuse)
    case name => refuse(s"the function ${name.mkString(".")}")
  }

  private def tableFunction(function: UnresolvedTableValuedFunction): Unit = {
    val name = function.name.map(_.toLowerCase)
    // what an argument reads would be taken for what the function's owner reads
    if (function.functionArgs.exists(_.exists(_.isInstanceOf[SubqueryExpression]))) refuse("a query as argument")
    name match {
      case Seq(builtin) => Functions.faultOfTable(builtin, function.functionArgs).foreach(refuse)
      case _ => if (!mayRead(resolved(name))) refuse(s"the table function ${name.mkString(".")}")
    }
  }

  private def word(part: String): Unit =
    if (!part.matches("\\w+")) refuse(s"the name `$part`")

  /** A name that only the catalog can resolve: no path, no format, no table of a table. */
  private def name(parts: Seq[String]): Unit = {
    val database = parts match {
      // perhaps one that the statement itself gives, which has more characters than those of the catalog
      case Seq(alone) if alone.matches("[^/\\\\:.%]+") => None
      case Seq(database, _) => Some(database)
      case Seq(catalog, database, _) if catalog.equalsIgnoreCase("spark_catalog") => Some(database)
      case _ => refuse(s"the name ${parts.mkString(".")}")
    }
    if (database.nonEmpty) parts.foreach(word)
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
    val database = databaseOf(plan)
    val own = database == principal.scratch
    if (
      !own && (!principal.isWriter || published(database) || database.contains("__") || database.startsWith("scratch_"))
    )
      refuse(s"a write to the database $database")
  }

  /** The database that a statement writes. */
  private def databaseOf(statement: LogicalPlan): String = {
    val written = statement match {
      case insert: InsertIntoStatement => insert.table
      case replacement: OverwriteByExpression => replacement.table
      case command => command.children.head
    }
    def of(name: Seq[String]) = {
      // it becomes a folder's name
      name.foreach(word)
      resolved(name).database.get
    }
    written.collectFirst {
      case relation: UnresolvedRelation => of(relation.multipartIdentifier)
      case table: UnresolvedTable => of(table.multipartIdentifier)
      case table: UnresolvedTableOrView => of(table.multipartIdentifier)
      case view: UnresolvedView => of(view.multipartIdentifier)
      case identifier: UnresolvedIdentifier => of(identifier.nameParts)
      case UnresolvedNamespace(Seq(database), _) => database.toLowerCase
    }.getOrElse(refuse(s"a target that is no name: $written"))
  }

  // --- the rights -------------------------------------------------------------------------------------------------

  private def queries(statement: LogicalPlan): Seq[LogicalPlan] = statement match {
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
        case FileSourceMetadataAttribute(_) => refuse("a column of files")
        case _ =>
      })
  }

  private def read(table: TableIdentifier): Unit =
    if (!mayRead(table)) refuse(s"the table ${table.unquotedString}")

  private def mayRead(table: TableIdentifier): Boolean = principal.isWriter || {
    val database = table.database.getOrElse("").toLowerCase
    val name = s"$database.${table.table.toLowerCase}"
    database == principal.scratch || readable.exists(name.matches) && !hidden.exists(name.matches)
  }

  private def refuse(what: String): Nothing = throw new NotAllowed(
    s"not_allowed: expected a statement that the role ${principal.role} may run, found $what; nothing was run. " +
      (if (principal.isWriter)
         s"A writer reads the lake and writes databases beside ${published.toSeq.sorted.mkString(", ")}, "
       else s"A reader reads silver, gold, marts, quality and pins, and writes tables of ${principal.scratch}, ") +
      "by names of the catalog and with Spark's own functions; what else a job needs goes through `tidemark` commands or " +
      "Spark Connect"
  )
}

object Rules {
  private def names(text: String): Set[String] = text.split("\\s+").filter(_.nonEmpty).toSet

  private val Reading = names("""
    Project Filter Aggregate Join LateralJoin Sort GlobalLimit LocalLimit LimitAll Offset Distinct Deduplicate Union Except
    Intersect SubqueryAlias UnresolvedSubqueryColumnAliases UnresolvedRelation UnresolvedInlineTable
    OneRowRelation UnresolvedWith WithWindowDefinition Window Generate Pivot Unpivot Sample UnresolvedHint
    UnresolvedTableValuedFunction UnresolvedTVFAliases UnresolvedHaving UnresolvedQualify LocalRelation PipeOperator
    DescribeQueryCommand DescribeRelation DescribeColumn DescribeFunction ShowTables ShowViews ShowColumns
    ShowTableColumnsCommand ShowNamespaces ShowNamespacesCommand ShowFunctions ShowCurrentNamespaceCommand
    ShowCatalogsCommand SetCatalogAndNamespace SetCommand
    UnresolvedTable UnresolvedTableOrView UnresolvedView UnresolvedIdentifier UnresolvedNamespace UnresolvedFunctionName
    CurrentNamespace ResolvedNamespace""")

  private val Writing =
    names("CreateTable ReplaceTable CreateTableAsSelect ReplaceTableAsSelect InsertIntoStatement DropTable")

  private val WritersOwn = names(
    """
    DeleteFromTable UpdateTable MergeIntoTable TruncateTable CreateView AlterViewAs DropView CreateNamespace DropNamespace
    OverwriteByExpression AddColumns DropColumns RenameColumn SetTableProperties UnsetTableProperties CommentOnTable CommentOnNamespace"""
  )

  /** A plan shows values of what is under a published name, and a version what the publication leaves out. */
  private val WritersLook = names(
    """
    ExplainCommand RelationTimeTravel DescribeDeltaHistory ShowTablesExtended ShowTableProperties ShowCreateTable RefreshTable DescribeNamespace"""
  )

  /** Relations of a resolved query that hold nothing of the lake. */
  private val Leaves =
    names("LocalRelation OneRowRelation Range CTERelationRef UnionLoopRef EmptyRelation ResolvedInlineTable")

  /** Expressions that the parser makes. */
  private val Terms = names("""
    Add AggregateExpression Alias And AnyValue Assignment AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    CaseWhen Cast Coalesce Collate ColumnDefinition Concat CreateNamedStruct Cube CurrentDate CurrentPath CurrentRow
    CurrentTime CurrentTimestamp CurrentUser DefaultValueExpression DeleteAction Divide EqualNullSafe EqualTo Exists First
    GreaterThan GreaterThanOrEqual GroupingSets ILike In InSubquery InsertAction InsertStarAction IntegralDivide IsNotNull
    IsNull LambdaFunction Last LateralSubquery LessThan LessThanOrEqual Like LikeAll LikeAny ListQuery Literal Lower
    MultiAlias Multiply NamePlaceholder NamedArgumentExpression Not NotLikeAll NotLikeAny OptionList Or Overlay
    PipeExpression QualifiedColType RLike Remainder Rollup ScalarSubquery SemiStructuredExtract ShiftLeft ShiftRight
    ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft StringTrimRight Substring
    Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing UnboundedPreceding UnresolvedAlias
    UnresolvedCollation UnresolvedExtractValue UnresolvedFieldName UnresolvedFieldPosition UnresolvedOrdinal
    UnresolvedPipeAggregateOrdinal UnresolvedRegex UnresolvedStarExceptOrReplace
    UnresolvedWindowExpression UnspecifiedFrame UpdateAction UpdateStarAction WindowExpression WindowSpecDefinition""")

  /** Properties of tables, views and databases, in lower case. */
  private val Properties = names("""
    comment delta.appendonly delta.columnmapping.mode delta.deletedfileretentionduration delta.enablechangedatafeed
    delta.enabledeletionvectors delta.logretentionduration delta.targetfilesize""")
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
    "spark.sql.ansi.enabled" -> "true|false"
  )
  private val writer = Map("spark.databricks.delta.commitinfo.usermetadata" -> "(?s).*")

  def knows(key: String, principal: Principal): Boolean = pattern(key, principal).isDefined

  def mayBe(key: String, value: String, principal: Principal): Boolean = pattern(key, principal).exists(value.matches)

  private def pattern(key: String, principal: Principal) =
    session.get(key.toLowerCase).orElse(writer.get(key.toLowerCase).filter(_ => principal.isWriter))
}
