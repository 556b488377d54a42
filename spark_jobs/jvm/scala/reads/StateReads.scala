package org.apache.spark.sql.hive.thriftserver.tidemark

import java.net.URLEncoder
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.nio.file.StandardOpenOption.{APPEND, CREATE}
import java.nio.file.attribute.PosixFilePermissions

import scala.util.control.NonFatal

import org.apache.spark.SparkConf
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.analysis.SQLFunctionNode
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisOnlyCommand, CommandResult, Filter, LogicalPlan, View}
import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.util.QueryExecutionListener
import org.apache.spark.unsafe.types.UTF8String

/** Notes each read of a published state by SQL: by people, programs, the portal and dbt. Python counts the notes.
  *
  * A line of the file is the name that was read, a tab, and the values of its columns that the query asks for, as in a
  * URL. A note that cannot be written is left out: counts decide the places of checkpoints, and no answer.
  */
class StateReads(conf: SparkConf) extends QueryExecutionListener {
  private val file = Path.of(conf.get(StateReads.FILE))

  override def onSuccess(function: String, query: QueryExecution, tookNs: Long): Unit =
    try {
      // the answer of a command is a statement of its own, after the command
      val notes = if (query.commandExecuted.isInstanceOf[CommandResult]) Nil else StateReads.of(query.analyzed)
      if (notes.nonEmpty) append(notes.map(_ + "\n").mkString)
    } catch { case NonFatal(_) => }

  override def onFailure(function: String, query: QueryExecution, failure: Exception): Unit = ()

  private def append(lines: String): Unit = synchronized {
    Files.createDirectories(file.getParent)
    val channel =
      FileChannel.open(file, java.util.Set.of(CREATE, APPEND), PosixFilePermissions.asFileAttribute(StateReads.OWNERS))
    try {
      // Python empties the file once it has counted the lines
      val lock = channel.lock()
      try if (channel.size < StateReads.MOST_BYTES) channel.write(ByteBuffer.wrap(lines.getBytes(UTF_8)))
      finally lock.release()
    } finally channel.close()
  }
}

object StateReads {
  val FILE = "spark.tidemark.reads"
  private val MOST_BYTES = 8L << 20
  private val DATABASE = "gold"
  private val OWNERS = PosixFilePermissions.fromString("rw-------")

  /** The notes of a resolved statement. */
  def of(statement: LogicalPlan): Seq[String] = {
    val roots = statement match {
      case command: AnalysisOnlyCommand => command.childrenToAnalyze
      case other => Seq(other)
    }
    val conditions = roots
      .flatMap(_.collectWithSubqueries { case Filter(condition, _) => wanted(condition) })
      .flatten
      .groupMapReduce(_._1)(_._2)(_ ++ _)
    roots.flatMap(_.collectWithSubqueries {
      case view: View => note(view.desc.identifier, view.output, conditions)
      case body: SQLFunctionNode =>
        note(TableIdentifier(body.function.name.funcName, body.function.name.database), body.output, conditions)
    }.flatten)
  }

  private def note(
      name: TableIdentifier,
      columns: Seq[Attribute],
      conditions: Map[ExprId, Seq[String]]
  ): Option[String] =
    Option.when(name.database.contains(DATABASE)) {
      val values = for (column <- columns; value <- conditions.getOrElse(column.exprId, Nil)) yield column.name -> value
      name.table + "\t" + values.map { case (column, value) => s"${encoded(column)}=${encoded(value)}" }.mkString("&")
    }

  /** The texts that a condition asks for, by column: those of equalities that all rows meet. */
  private def wanted(condition: Expression): Seq[(ExprId, Seq[String])] = condition match {
    case And(left, right) => wanted(left) ++ wanted(right)
    case EqualTo(column: AttributeReference, Text(value)) => Seq(column.exprId -> Seq(value))
    case EqualTo(Text(value), column: AttributeReference) => Seq(column.exprId -> Seq(value))
    case In(column: AttributeReference, several) if several.forall(Text.unapply(_).nonEmpty) =>
      Seq(column.exprId -> several.flatMap(Text.unapply))
    case _ => Nil
  }

  private object Text {
    def unapply(expression: Expression): Option[String] = expression match {
      case Literal(value: UTF8String, _) => Some(value.toString)
      case _ => None
    }
  }

  private def encoded(text: String): String = URLEncoder.encode(text, UTF_8)
}
