// SPDX-License-Identifier: GPL-2.0

//! The plan of an RPC in one form, whichever planner it comes from.

use super::payload::{Layout, PARTS};
use super::rpc::Rpc;
use super::scenario::Scenario;
use crate::proto::requester::plan::{
    plan, CallForm, Parts, Plan, PlanLimits, ReplyForm, RpcShape, Side,
};
use crate::proto::testing::simulation::plan_general::{
    plan_general, CallPiece, GeneralPlan, ReplyPiece,
};

/// How an RPC travels.
pub(crate) type Form = GeneralPlan<PARTS, PARTS>;

/// Plans an RPC; `None` if it fits in no form.
pub(crate) fn form(rpc: &Rpc, scenario: &Scenario, limits: &PlanLimits) -> Option<Form> {
    let (call, reply) = rpc.region;
    if scenario.general {
        let (call, reply) = (rpc.call.pieces(call), rpc.largest.pieces(reply));
        return plan_general(&call, &reply, limits, scenario.reduction).ok();
    }
    let shape = RpcShape {
        call: side(&rpc.call, call),
        reply: side(&rpc.largest, reply),
    };
    let plan = plan(&shape, limits).ok()?;
    Some(general(&plan, &shape))
}

/// A message with one item, as the kernel keeps it.
fn side(layout: &Layout, region: u32) -> Side<Parts> {
    let [head, pages, tail, ..] = layout.pieces(region);
    Side {
        len: Parts {
            head: head.len,
            pages: pages.len,
            tail: tail.len,
        },
        segments: Parts {
            head: head.segments,
            pages: pages.segments,
            tail: tail.segments,
        },
        pages_eligible: pages.eligible,
    }
}

/// A plan for one item as one for any number of them.
fn general(plan: &Plan, shape: &RpcShape<Parts>) -> Form {
    let inline = CallPiece::Inline { skip: 0 };
    let call = match plan.call {
        CallForm::Inline => [inline; PARTS],
        CallForm::PositionZero => [CallPiece::PositionZero { skip: 0 }; PARTS],
        CallForm::ReadChunk {
            position,
            tail_skip,
        } => [
            inline,
            CallPiece::ReadChunk { position },
            CallPiece::Inline { skip: tail_skip },
            inline,
            inline,
        ],
    };
    let mut reply = [ReplyPiece::Inline; PARTS];
    let [_, pages, ..] = &mut reply;
    match plan.reply {
        ReplyForm::Inline => {}
        ReplyForm::WriteChunk => {
            *pages = ReplyPiece::WriteChunk {
                capacity: shape.reply.len.pages,
                segments: shape.reply.segments.pages,
            };
        }
        ReplyForm::ReplyChunk => reply = [ReplyPiece::ReplyChunk; PARTS],
    }
    GeneralPlan {
        call,
        reply,
        header_len: u32::try_from(plan.header_len()).unwrap_or(u32::MAX),
        inline_len: plan.inline_len,
    }
}
