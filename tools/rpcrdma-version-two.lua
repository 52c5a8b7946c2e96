-- SPDX-License-Identifier: GPL-2.0
--
-- RPC-over-RDMA Version Two (draft-cel-nfsv4-rpcrdma-version-two-00) for Wireshark, whose own
-- dissector knows Version One:
--
--	tshark -X lua_script:rpcrdma-version-two.lua -r FILE -Y rpcrdma2
--
-- It looks at the payloads of RoCEv2 packets for the fixed words of a message: later drafts have the same
-- version word, and are not told from this one.

local proto = Proto("rpcrdma2", "RPC-over-RDMA Version Two (draft -00)")

local procedures = {
	[0] = "RDMA_MSG", [1] = "RDMA_NOMSG", [2] = "RDMA_MSGP", [3] = "RDMA_DONE",
	[4] = "RDMA_ERROR", [5] = "RDMA_OPTIONAL",
}
local errors = { [1] = "RDMA_ERR_VERS", [2] = "RDMA_ERR_BAD_HEADER", [3] = "RDMA_ERR_INVAL_OPTION" }
local directions = { [0] = "Call", [1] = "Reply" }

local f = {
	xid = ProtoField.uint32("rpcrdma2.xid", "XID", base.HEX),
	version = ProtoField.uint32("rpcrdma2.version", "Version"),
	credits = ProtoField.uint32("rpcrdma2.credits", "Credits"),
	procedure = ProtoField.uint32("rpcrdma2.procedure", "Procedure", base.DEC, procedures),
	error = ProtoField.uint32("rpcrdma2.error", "Error", base.DEC, errors),
	low = ProtoField.uint32("rpcrdma2.version_low", "Lowest version"),
	high = ProtoField.uint32("rpcrdma2.version_high", "Highest version"),
	opttype = ProtoField.uint32("rpcrdma2.opttype", "Option"),
	optinfo = ProtoField.bytes("rpcrdma2.optinfo", "Option data"),
	reads = ProtoField.uint32("rpcrdma2.reads", "Read segments"),
	writes = ProtoField.uint32("rpcrdma2.writes", "Write chunks"),
	reply = ProtoField.uint32("rpcrdma2.reply", "Reply chunk segments"),
	position = ProtoField.uint32("rpcrdma2.position", "Position"),
	handle = ProtoField.uint32("rpcrdma2.handle", "Handle", base.HEX),
	length = ProtoField.uint32("rpcrdma2.length", "Length"),
	offset = ProtoField.uint64("rpcrdma2.offset", "Offset", base.HEX),
	direction = ProtoField.uint32("rpcrdma2.direction", "Direction", base.DEC, directions),
	payload = ProtoField.bytes("rpcrdma2.payload", "RPC message, or what the chunks leave of it"),
}
proto.fields = f

local malformed = ProtoExpert.new("rpcrdma2.malformed", "Malformed header",
	expert.group.MALFORMED, expert.severity.ERROR)
proto.experts = { malformed }

-- Words one after the other. One that is not there ends the header.
local Reader = {}
Reader.__index = Reader

function Reader.new(buffer, at)
	return setmetatable({ buffer = buffer, at = at }, Reader)
end

function Reader:range(length)
	if self.at + length > self.buffer:len() then
		error("the message ends in its header", 0)
	end
	local range = self.buffer(self.at, length)
	self.at = self.at + length
	return range
end

function Reader:word(tree, field)
	local range = self:range(4)
	if tree then
		tree:add(field, range)
	end
	return range:uint()
end

function Reader:flag()
	local word = self:word()
	if word > 1 then
		error("a word is neither 0 nor 1", 0)
	end
	return word == 1
end

function Reader:segment(tree, position)
	local branch = tree:add(proto, self.buffer(self.at, 0), "Segment")
	if position then
		self:word(branch, f.position)
	end
	self:word(branch, f.handle)
	self:word(branch, f.length)
	branch:add(f.offset, self:range(8))
end

-- A counted array of segments; how many there are.
function Reader:chunk(tree)
	local count = self:word()
	if count * 16 > self.buffer:len() - self.at then
		error("more segments than the message has room for", 0)
	end
	for _ = 1, count do
		self:segment(tree)
	end
	return count
end

local function lists(reader, tree)
	local start, count = reader.at, 0
	local branch = tree:add(proto, reader.buffer(start, 0), "Read list")
	while reader:flag() do
		reader:segment(branch, true)
		count = count + 1
	end
	tree:add(f.reads, reader.buffer(start, reader.at - start), count)
	start, count = reader.at, 0
	branch = tree:add(proto, reader.buffer(start, 0), "Write list")
	while reader:flag() do
		reader:chunk(branch)
		count = count + 1
	end
	tree:add(f.writes, reader.buffer(start, reader.at - start), count)
	start, count = reader.at, 0
	if reader:flag() then
		count = reader:chunk(tree:add(proto, reader.buffer(start, 0), "Reply chunk"))
	end
	tree:add(f.reply, reader.buffer(start, reader.at - start), count)
end

local bodies = {
	[0] = function(reader, tree)
		lists(reader, tree)
		local rest = reader.buffer:len() - reader.at
		if rest >= 8 then
			tree:add(f.direction, reader.buffer(reader.at + 4, 4))
			tree:add(f.payload, reader.buffer(reader.at, rest))
		end
	end,
	[1] = lists,
	[2] = function() end,
	[3] = function() end,
	[4] = function(reader, tree)
		if reader:word(tree, f.error) == 1 then
			reader:word(tree, f.low)
			reader:word(tree, f.high)
		end
	end,
	[5] = function(reader, tree)
		reader:word(tree, f.opttype)
		local length = reader:word()
		tree:add(f.optinfo, reader:range(length))
		reader:range(-length % 4)
	end,
}

function proto.dissector(buffer, pinfo, root)
	local procedure = buffer(12, 4):uint()
	local tree = root:add(proto, buffer())
	pinfo.cols.protocol = "RPCoRDMA2"
	pinfo.cols.info = procedures[procedure]
	tree:add(f.xid, buffer(0, 4))
	tree:add(f.version, buffer(4, 4))
	tree:add(f.credits, buffer(8, 4))
	tree:add(f.procedure, buffer(12, 4))
	local good, why = pcall(bodies[procedure], Reader.new(buffer, 16), tree)
	if not good then
		tree:add_proto_expert_info(malformed, why)
	end
	return buffer:len()
end

-- Whether these may be the fixed words.
local function is_message(buffer)
	return buffer:len() >= 20 and buffer(4, 4):uint() == 2 and buffer(12, 4):uint() <= 5
		and buffer(8, 4):uint() > 0
end

-- First or only packet of a Send: what follows the base transport header of 12 bytes, but for the key that
-- a Send With Invalidate has behind it, up to the invariant CRC of 4 bytes.
local starts = { [0] = 12, [4] = 12, [23] = 16 }

local udp_port = Field.new("udp.dstport")
local udp_payload = Field.new("udp.payload")
local sends = Proto("rpcrdma2_roce", "Sends of RPC-over-RDMA Version Two")

function sends.dissector(_, pinfo, root)
	local port, field = udp_port(), udp_payload()
	if not port or port.value ~= 4791 or not field then
		return
	end
	local packet = field.range
	if packet:len() < 16 then
		return
	end
	local start = starts[packet:range(0, 1):uint() % 32]
	if not start or packet:len() < start + 24 then
		return
	end
	local message = packet:range(start, packet:len() - start - 4):tvb()
	if is_message(message) then
		proto.dissector(message, pinfo, root)
	end
end

register_postdissector(sends)
