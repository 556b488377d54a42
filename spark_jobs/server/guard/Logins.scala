package org.apache.spark.sql.hive.thriftserver.tidemark

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.security.MessageDigest
import javax.security.sasl.AuthenticationException

import scala.jdk.CollectionConverters._

import org.apache.hadoop.hive.conf.HiveConf
import org.apache.hive.service.auth.{LdapAuthenticationProviderImpl, PasswdAuthenticationProvider}
import org.apache.spark.SparkEnv
import org.apache.spark.deploy.SparkHadoopUtil

/** Who is logged in. `role` is `reader` or `writer`; `scratch` is the one database that a reader may write. */
final case class Principal(user: String, role: String) {
  def isWriter: Boolean = role == "writer"

  val scratch: String = {
    val plain = user.toLowerCase.replaceAll("[^a-z0-9_]", "_")
    "scratch_" + (if (plain == user) plain else f"${plain}_${user.hashCode}%08x")
  }
}

/** The file of logins: a line is `user role password`; without a password another provider decides about the user. */
object Logins {
  private final case class Login(role: String, password: String)

  def principal(user: String): Principal =
    Principal(user, read().get(user).map(_.role).filter(_ == "writer").getOrElse("reader"))

  /** Whether the file decides about `user`, and if so whether this is the password. */
  def matches(user: String, password: String): Option[Boolean] =
    read().get(user).filter(_.password.nonEmpty).map(login => equal(login.password, password))

  def setting(name: String): String = SparkEnv.get.conf.get(s"spark.tidemark.$name")

  /** Read at each login, so that an edit holds at once. */
  private def read(): Map[String, Login] =
    Files.readAllLines(Path.of(setting("logins"))).asScala.map(_.trim.split("\\s+")).collect {
      case Array(user, role, password @ _*) if user.nonEmpty && !user.startsWith("#") =>
        user -> Login(role, password.headOption.getOrElse(""))
    }.toMap

  private def equal(a: String, b: String) = MessageDigest.isEqual(a.getBytes(UTF_8), b.getBytes(UTF_8))
}

/** Decides about logins over JDBC: by the file, and for users that it gives no password by the configured provider. */
class LoginProvider extends PasswdAuthenticationProvider {
  override def Authenticate(user: String, password: String): Unit =
    Logins.matches(user, password) match {
      case Some(true) =>
      case None if other.isDefined => other.get.Authenticate(user, password)
      case _ =>
        throw new AuthenticationException(
          "login_refused: expected a user and the password from the file of logins, found another; ask whoever runs " +
            "this lake (`tidemark status` names the file)")
    }

  private lazy val other: Option[PasswdAuthenticationProvider] = Logins.setting("login.provider") match {
    case "file" => None
    case "ldap" =>
      val conf = new HiveConf()
      SparkHadoopUtil.get.conf.asScala.filter(_.getKey.contains("authentication.ldap"))
        .foreach(entry => conf.set(entry.getKey, entry.getValue))
      val made = classOf[LdapAuthenticationProviderImpl].getDeclaredConstructor(classOf[HiveConf])
      made.setAccessible(true)
      Some(made.newInstance(conf))
    case name =>
      Some(Class.forName(name).getConstructor().newInstance().asInstanceOf[PasswdAuthenticationProvider])
  }
}
