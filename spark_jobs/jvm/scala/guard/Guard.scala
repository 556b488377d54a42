package org.apache.spark.sql.hive.thriftserver.tidemark

import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.catalog.SQLFunction
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.types.{DataType, StructType}

/** The extension: every statement of a session that was opened by a login passes the rules before it is anything else.
  *
  * The principal is bound when the session's state is built, in the thread that opens it for an authenticated
  * connection; no setting, statement or later thread can change it. Other sessions are the server's own and the
  * pipeline's, which shows the token of Spark Connect.
  */
class Guard extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectParser((session, parser) =>
      Option(Guard.opening.get).fold(parser)(new GuardedParser(session, parser, _))
    )
    extensions.injectResolutionRule(_ => Deadline)
    extensions.injectOptimizerRule(_ => Deadline)
  }
}

object Guard {
  private val opening = new ThreadLocal[Principal]

  /** A new session beside `root` that is bound to the principal. */
  def newSession(root: SparkSession, principal: Principal): SparkSession = {
    opening.set(principal)
    try {
      val session = root.newSession()
      session.sessionState.sqlParser match {
        case guarded: GuardedParser if guarded.principal == principal => session
        case other => throw new IllegalStateException(s"expected a guarded session, found the parser $other")
      }
    } finally opening.remove()
  }
}

object GuardedParser {

  /** Whether Spark asks for the body of a function, which is its owner's: it parses that as it parses a statement. */
  private def parsesFunction: Boolean =
    StackWalker.getInstance.walk[Boolean](_.anyMatch(_.getClassName == classOf[SQLFunction].getName))
}

/** Spark's parser, with the rules behind it. Bodies of views come through `parseQuery`: they are their owner's. */
class GuardedParser(session: SparkSession, parser: ParserInterface, val principal: Principal) extends ParserInterface {
  private lazy val rules = new Rules(
    session.sessionState.catalog,
    session.sessionState.executePlan(_).analyzed,
    principal,
    Logins.setting("readable").split(",").toSeq,
    Logins.setting("unpublished").split(",").toSeq,
    Logins.setting("published").split(",").toSet,
    Scratch.ensure
  )

  override def parsePlan(text: String): LogicalPlan =
    if (GuardedParser.parsesFunction) parser.parsePlan(text) else checked(text)(parser.parsePlan(text))

  override def parsePlanWithParameters(text: String, parameters: ParameterContext): LogicalPlan =
    checked(text)(parser.parsePlanWithParameters(text, parameters))

  private def checked(text: String)(parse: => LogicalPlan): LogicalPlan = {
    Bounds.fault(text).foreach(fault => throw Bounds.refusal(fault))
    rules.check(parse)
  }

  override def parseQuery(text: String): LogicalPlan = parser.parseQuery(text)
  override def parseExpression(text: String): Expression = parser.parseExpression(text)
  override def parseTableIdentifier(text: String): TableIdentifier = parser.parseTableIdentifier(text)
  override def parseFunctionIdentifier(text: String): FunctionIdentifier = parser.parseFunctionIdentifier(text)
  override def parseMultipartIdentifier(text: String): Seq[String] = parser.parseMultipartIdentifier(text)
  override def parseRoutineParam(text: String): StructType = parser.parseRoutineParam(text)
  override def parseTableSchema(text: String): StructType = parser.parseTableSchema(text)
  override def parseDataType(text: String): DataType = parser.parseDataType(text)
}
