"""`torch.compile(model, backend="memplan")`: Dynamo's graphs in another order, with writes in place and with
ops that run again, bit for bit as eager."""
