package org.apache.spark.sql.hive.thriftserver.tidemark

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.security.MessageDigest
import java.util.{Hashtable => JHashtable}
import javax.naming.{Context, NamingException}
import javax.naming.directory.InitialDirContext
import javax.naming.ldap.Rdn
import javax.security.sasl.AuthenticationException

import scala.jdk.CollectionConverters._

import org.apache.hive.service.auth.PasswdAuthenticationProvider
import org.apache.spark.SparkEnv

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

  /** What a client sent: Hive takes each byte of a name or a password for a character. */
  def received(text: String): String = new String(text.map(_.toByte).toArray, UTF_8)

  def refused(expected: String, found: String) = new AuthenticationException(
    s"login_refused: expected $expected, found $found; ask whoever runs this lake (`tidemark status` names the file)"
  )

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
  override def Authenticate(sentUser: String, sentPassword: String): Unit = {
    val (user, password) = (Logins.received(sentUser), Logins.received(sentPassword))
    Logins.matches(user, password) match {
      case Some(true) =>
      case None if other.isDefined =>
        try other.get.Authenticate(user, password)
        catch {
          case refusal: AuthenticationException =>
            note(user)
            throw refusal
        }
      case _ =>
        note(user)
        throw Logins.refused("a user and the password from the file of logins", "another")
    }
  }

  private def note(user: String): Unit = {
    val plain = user.take(100).replaceAll("\\p{Cntrl}", "?")
    Notices.add(s"a login as $plain from ${Connection.current.address} was refused")
  }

  private lazy val other: Option[PasswdAuthenticationProvider] = Logins.setting("login.provider") match {
    case "file" => None
    case "ldap" => Some(new Directory(Logins.setting("ldap.url"), Logins.setting("ldap.user")))
    case name =>
      Some(Class.forName(name).getConstructor().newInstance().asInstanceOf[PasswdAuthenticationProvider])
  }
}

/** Has an LDAP server check passwords: a user may log in who can bind. `pattern` is a user's distinguished name, with `%s`
  * for the name that was given. Hive's own provider knows no such pattern, and takes a name for what it makes of it. */
class Directory(url: String, pattern: String) extends PasswdAuthenticationProvider {
  override def Authenticate(user: String, password: String): Unit = {
    // without a password a bind succeeds for whomever it names
    if (password == null || password.isEmpty) throw Logins.refused("a password of the directory", "none")
    val wishes = new JHashtable[String, String]()
    wishes.put(Context.INITIAL_CONTEXT_FACTORY, "com.sun.jndi.ldap.LdapCtxFactory")
    wishes.put(Context.PROVIDER_URL, url)
    wishes.put(Context.SECURITY_AUTHENTICATION, "simple")
    wishes.put(Context.SECURITY_PRINCIPAL, pattern.replace("%s", Rdn.escapeValue(user).toString))
    wishes.put(Context.SECURITY_CREDENTIALS, password)
    Seq("connect", "read").foreach(what => wishes.put(s"com.sun.jndi.ldap.$what.timeout", "10000"))
    try new InitialDirContext(wishes).close()
    catch {
      case error: NamingException =>
        val reason = s"${error.getClass.getSimpleName}: ${error.getMessage}"
        System.err.println(s"$url refused the login of a user: $reason")
        throw Logins.refused("a user and the password from the directory", reason)
    }
  }
}
