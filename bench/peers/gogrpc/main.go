// /demo.Greeter/Greet on grpc-go, one processor. StringValue is on the wire what both its messages are: a string, field 1.
package main

import (
	"context"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func greet(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	name := new(wrapperspb.StringValue)
	if err := decode(name); err != nil {
		return nil, err
	}
	return wrapperspb.String("Hello, " + name.GetValue() + "!"), nil
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "demo.Greeter",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Greet", Handler: greet}},
	}, struct{}{})
	log.Fatal(server.Serve(listener))
}
