package org.apache.spark.sql.hive.thriftserver.tidemark

import java.util.Locale

import scala.jdk.CollectionConverters._

import org.antlr.v4.runtime.{CharStreams, CommonTokenStream, Token}
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer
import org.apache.spark.sql.catalyst.plans.logical._

/** Bounds of a statement, checked before Spark parses or resolves it. Both take memory by what the text becomes, not by
  * its length: thirty common table expressions of which each joins the one before with itself have a thousand million
  * relations.
  */
object Bounds {
  val MOST_CHARACTERS = 1000000L

  /** Brackets within each other, and levels of the parsed tree: parser and rules call themselves for each. */
  val MOST_BRACKETS = 200L
  val MOST_LEVELS = 400L

  /** Columns of one `CUBE`: the parser makes a set of each choice of them. */
  val MOST_OF_CUBE = 10L

  /** Names that the catalog must look up. */
  val MOST_RELATIONS = 200L

  /** Columns of a relation, with the fields in them. */
  val MOST_COLUMNS = 20000L
  val MOST_PARTS = 250000L

  /** Columns that a table of the catalog is taken to have. */
  private val OF_TABLE = 64.0

  /** Functions whose result has the fields of all arguments. */
  private val Combining =
    Set("struct", "named_struct", "map", "map_from_arrays", "map_entries", "arrays_zip", "zip_with")

  /** What a relation or an expression becomes.
    *
    * @param columns that it has
    * @param fields of its widest column
    * @param relations that the catalog must look up for it
    * @param parts plan nodes and expressions
    * @param levels of the parsed tree
    * @param widest columns with their fields of it, or of a relation that it is made of
    */
  private final case class Extent(
      columns: Double = 0,
      fields: Double = 1,
      relations: Double = 0,
      parts: Double = 0,
      levels: Int = 0,
      widest: Double = 0
  ) {
    def beside(other: Extent): Extent = Extent(
      columns + other.columns,
      fields.max(other.fields),
      relations + other.relations,
      parts + other.parts,
      levels.max(other.levels),
      widest.max(other.widest)
    )

    /** The greater of both in everything but what the result is. */
    def orMore(other: Extent): Extent = copy(
      relations = relations.max(other.relations),
      parts = parts.max(other.parts),
      levels = levels.max(other.levels),
      widest = widest.max(other.widest)
    )

    def asNode: Extent = copy(parts = parts + 1, levels = levels + 1, widest = widest.max(columns * fields))
  }

  private val Nothing = Extent()
  private val Scalar = Extent(columns = 1).asNode
  private val OfTable = Extent(columns = OF_TABLE, relations = 1).asNode

  /** Which bound a text passes, if any. */
  def fault(text: String): Option[String] =
    passed(text.length, MOST_CHARACTERS, "characters").orElse {
      val lexer = new SqlBaseLexer(CharStreams.fromString(text.toUpperCase(Locale.ROOT)))
      lexer.removeErrorListeners()
      val stream = new CommonTokenStream(lexer)
      stream.fill()
      val tokens = stream.getTokens.asScala.filter(_.getChannel == Token.DEFAULT_CHANNEL).toIndexedSeq
      val depths = tokens.scanLeft(0L)((depth, token) => depth + level(token))
      passed(depths.max.toDouble, MOST_BRACKETS, "brackets within each other").orElse {
        val cubes = tokens.indices.filter(tokens(_).getType == SqlBaseLexer.CUBE).map { cube =>
          val inside = (cube + 2 until tokens.size).takeWhile(depths(_) > depths(cube))
          inside.count(place => tokens(place).getType == SqlBaseLexer.COMMA).toLong + 1
        }
        passed(cubes.maxOption.getOrElse(0L).toDouble, MOST_OF_CUBE, "columns of a CUBE")
      }
    }

  private def level(token: Token): Long = token.getType match {
    case SqlBaseLexer.LEFT_PAREN => 1
    case SqlBaseLexer.RIGHT_PAREN => -1
    case _ => 0
  }

  /** Which bound a parsed statement passes, if any. */
  def fault(statement: LogicalPlan): Option[String] =
    try {
      val all = extent(statement, Map.empty)
      passed(all.levels, MOST_LEVELS, "levels")
        .orElse(passed(all.relations, MOST_RELATIONS, "tables and views, each as often as the statement needs it"))
        .orElse(passed(all.widest, MOST_COLUMNS, "columns and fields of a relation"))
        .orElse(passed(all.parts, MOST_PARTS, "parts when it is resolved"))
    } catch { case _: StackOverflowError => Some(s"more than $MOST_LEVELS levels") }

  def refusal(fault: String): NotAllowed = new NotAllowed(
    s"limit_size: expected a statement that resolving does not make large, found $fault; nothing was run; ask in parts, " +
      "or keep a part as a table"
  )

  private def passed(size: Double, most: Long, unit: String): Option[String] =
    if (size <= most) None else Some(s"more than $most $unit")

  private def extent(plan: LogicalPlan, named: Map[String, Extent]): Extent = plan match {
    case relation: UnresolvedRelation =>
      val isOfStatement = relation.multipartIdentifier.size == 1
      Some(relation.multipartIdentifier.last.toLowerCase).filter(_ => isOfStatement).flatMap(named.get)
        .getOrElse(OfTable).asNode
    case statement: UnresolvedWith =>
      val inner = statement.cteRelations.foldLeft(named) { (known, relation) =>
        // a name, its query, and what Spark keeps beside them
        val parts = relation.asInstanceOf[Product].productIterator
        val name = parts.next().asInstanceOf[String].toLowerCase
        val query = parts.next().asInstanceOf[LogicalPlan]
        known + (name -> extent(query, if (statement.allowRecursion) known + (name -> OfTable) else known))
      }
      // one that nothing reads is resolved, too
      inner.values.foldLeft(extent(statement.child, inner))(_ orMore _).asNode
    case project: Project => select(project.projectList, project.child, named)
    case aggregate: Aggregate =>
      val sets = aggregate.groupingExpressions.map(setsOf).product
      val chosen = select(aggregate.aggregateExpressions ++ aggregate.groupingExpressions, aggregate.child, named)
      chosen.copy(parts = chosen.parts + (if (sets > 1) sets * chosen.columns.max(OF_TABLE) else 0))
    case function: UnresolvedTableValuedFunction => ofTerms(termsIn(function), Nothing, named).beside(OfTable).asNode
    case set @ (_: Union | _: SetOperation) =>
      val sides = set.children.map(extent(_, named))
      sides.foldLeft(Nothing)(_ beside _).copy(columns = sides.map(_.columns).max).asNode
    case other =>
      val inputs = plansIn(other).map(extent(_, named)).foldLeft(Nothing)(_ beside _)
      val terms = ofTerms(termsIn(other), inputs, named)
      inputs.beside(terms).copy(columns = inputs.columns.max(1) + generated(other)).asNode
  }

  // whatever a node keeps, as a child or not
  private def plansIn(node: Product): Seq[LogicalPlan] = kept(node).collect { case plan: LogicalPlan => plan }
  private def termsIn(node: Product): Seq[Expression] = kept(node).collect { case term: Expression => term }

  private def kept(node: Product): Seq[Any] = node.productIterator.flatMap(nodes).toSeq

  private def nodes(part: Any): Iterator[Any] = part match {
    case plan: LogicalPlan => Iterator(plan)
    case term: Expression => Iterator(term)
    case several: Iterable[_] => several.iterator.flatMap(nodes)
    case other: Product => other.productIterator.flatMap(nodes)
    case _ => Iterator.empty
  }

  private def generated(plan: LogicalPlan): Double = plan match {
    case generate: Generate => generate.generatorOutput.size.max(1).toDouble
    case table: UnresolvedInlineTable => table.names.size.toDouble
    case pivot: Pivot => pivot.pivotValues.size.toDouble * pivot.aggregates.size
    case _ => 0
  }

  private def select(terms: Seq[Expression], child: LogicalPlan, named: Map[String, Extent]): Extent = {
    val input = extent(child, named)
    val output = ofTerms(terms, input, named)
    input.beside(output).copy(columns = output.columns, fields = output.fields).asNode
  }

  private def ofTerms(terms: Seq[Expression], input: Extent, named: Map[String, Extent]): Extent =
    terms.map(ofTerm(_, input, named)).foldLeft(Nothing)(_ beside _)

  private def ofTerm(term: Expression, input: Extent, named: Map[String, Extent]): Extent = term match {
    case _: Star => Extent(input.columns + input.fields - 1, input.fields, parts = input.columns).asNode
    case other =>
      val queries = plansIn(other).map(extent(_, named).copy(columns = 1))
      val arguments = termsIn(other).map(ofTerm(_, input, named)) ++ queries
      if (arguments.isEmpty) Scalar.copy(fields = if (other.isInstanceOf[Literal]) 1 else input.fields)
      else {
        val all = arguments.foldLeft(Nothing)(_ beside _)
        val fields = if (isCombining(other)) arguments.map(each => each.columns * each.fields).sum else all.fields
        all.copy(columns = if (isInline(other)) fields.max(1) else 1, fields = fields).asNode
      }
  }

  private def isCombining(term: Expression): Boolean = term match {
    case function: UnresolvedFunction => Combining(function.nameParts.last.toLowerCase)
    case _: CreateNamedStruct => true
    case _ => false
  }

  private def isInline(term: Expression): Boolean = term match {
    case function: UnresolvedFunction => function.nameParts.last.toLowerCase.startsWith("inline")
    case _ => false
  }

  /** Sets that a grouping makes. */
  private def setsOf(term: Expression): Double = term match {
    case cube: Cube => math.pow(2, cube.children.size)
    case rollup: Rollup => rollup.children.size + 1
    case sets: GroupingSets => sets.groupingSetIndexes.size.max(1)
    case _ => 1
  }
}
