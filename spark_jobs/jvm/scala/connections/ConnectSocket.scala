package org.apache.spark.sql.connect.tidemark

import java.net.UnixDomainSocketAddress
import java.nio.file.{Files, Path}
import java.util.concurrent.TimeUnit

import io.netty.channel.{ChannelOption, MultiThreadIoEventLoopGroup}
import io.netty.channel.nio.NioIoHandler
import io.netty.channel.socket.nio.NioServerDomainSocketChannel
import org.apache.spark.SparkConf
import org.apache.spark.sql.connect.config.Connect
import org.apache.spark.util.{ShutdownHookManager, ThreadUtils}
import org.sparkproject.connect.grpc.{BindableService, ServerInterceptor}
import org.sparkproject.connect.grpc.netty.NettyServerBuilder

/** Spark Connect at a Unix socket, beside Spark's port and with the same sessions: in a folder that its user alone may
  * enter, nobody else can listen in the server's place and be given the token.
  */
object ConnectSocket {
  def start(conf: SparkConf): Unit = {
    val path = Path.of(conf.get("spark.tidemark.connect.socket"))
    // a server that was killed has left it
    Files.deleteIfExists(path)
    val builder = NettyServerBuilder
      .forAddress(UnixDomainSocketAddress.of(path))
      .channelType(classOf[NioServerDomainSocketChannel])
      .bossEventLoopGroup(threads(1))
      .workerEventLoopGroup(threads(0))
      // gRPC sets it for each connection, and netty warns each time: a Unix socket has no such option
      .withChildOption[java.lang.Boolean](ChannelOption.SO_KEEPALIVE, null)
      .maxInboundMessageSize(conf.get(Connect.CONNECT_GRPC_MAX_INBOUND_MESSAGE_SIZE).toInt)
      .addService(instance[BindableService]("SparkConnectService", classOf[Boolean] -> Boolean.box(false)))
      .intercept(instance[ServerInterceptor](
        "PreSharedKeyAuthenticationInterceptor",
        classOf[String] -> conf.get("spark.connect.authenticate.token")
      ))
    addSparksInterceptors(builder)
    val server = builder.build().start()
    ShutdownHookManager.addShutdownHook { () =>
      server.shutdownNow().awaitTermination(1, TimeUnit.SECONDS)
      Files.deleteIfExists(path)
    }
  }

  /** Event loops; 0: as many as netty finds right. */
  private def threads(most: Int) =
    new MultiThreadIoEventLoopGroup(most, ThreadUtils.namedThreadFactory("connect-socket"), NioIoHandler.newFactory())

  // The compiler can't read these classes of Spark: their signatures name gRPC where it was before it moved into Spark's jar.

  private def instance[A](name: String, argument: (Class[_], Object)): A =
    sparks(name).getConstructor(argument._1).newInstance(argument._2).asInstanceOf[A]

  private def addSparksInterceptors(builder: NettyServerBuilder): Unit = {
    val registry = sparks("SparkConnectInterceptorRegistry$")
    val it = registry.getField("MODULE$").get(null)
    val configured = registry.getMethod("createConfiguredInterceptors").invoke(it)
    registry.getMethod("chainInterceptors", classOf[NettyServerBuilder], classOf[Seq[_]]).invoke(
      it,
      builder,
      configured
    )
  }

  private def sparks(name: String): Class[_] = Class.forName(s"org.apache.spark.sql.connect.service.$name")
}
